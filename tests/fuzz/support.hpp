// What the fuzz targets share.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <unistd.h>

namespace kiln::fuzz {

/// A broken promise ends the process; libFuzzer then keeps the input.
inline void require(bool holds, std::string_view promise, std::string_view found = {}) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n%.*s\n", static_cast<int>(promise.size()), promise.data(),
               static_cast<int>(found.size()), found.data());
  std::abort();
}

/// A folder of this process alone, in memory where there is such a file system, removed at the end.
class Scratch {
 public:
  Scratch() {
    const char* named = std::getenv("TMPDIR");  // which tests/fuzz/run removes: libFuzzer ends without destructors
    const char* parent = named != nullptr ? named : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    std::string name = std::string(parent) + "/kiln-fuzz-XXXXXX";
    require(mkdtemp(name.data()) != nullptr, "a temporary folder can be made");
    path_ = name;
  }
  ~Scratch() {
    clear();
    std::filesystem::remove(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) std::filesystem::remove_all(entry);
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// With mode 0600, as an overlay must have.
inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace kiln::fuzz

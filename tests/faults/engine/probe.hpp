// A copy of the probe, which prints what the environment chooses, in a folder of the test's own.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "faults/engine/fixture.hpp"

namespace kiln::faults {

inline constexpr uid_t nobody = 65534;

/// A folder that all may enter, on a file system that knows setuid where there is one.
class OpenFolder {
 public:
  OpenFolder() {
    std::string name = (fs::temp_directory_path() / "kiln-probe-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    fs::permissions(path_, fs::perms(0755));
  }
  ~OpenFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;
  [[nodiscard]] fs::path operator/(const char* name) const { return path_ / name; }
  [[nodiscard]] bool knows_setuid() const {
    struct statvfs found {};
    return statvfs(path_.c_str(), &found) == 0 && (found.f_flag & ST_NOSUID) == 0;
  }

 private:
  fs::path path_;
};

inline fs::path copy_of_probe(const fs::path& folder) {
  fs::create_directories(folder);
  fs::copy_file(PROBE, folder / "probe");
  fs::permissions(folder / "probe", fs::perms(0755));
  return folder / "probe";
}

}  // namespace kiln::faults

// An engine with a private overlay over the ops of the tests, and the op `scale` with its tensors.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "e2e/machine.hpp"

namespace e2e {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    // Many commits, each with its syncs: in memory where there is such a folder.
    const auto parent =
        access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
    std::string name = (parent / "kiln-e2e-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::filesystem::path> test_ops() {
  const std::filesystem::path root = KILN_SOURCE_DIR;
  return {root / "tests/e2e/ops", root / "tests/ops", root / "examples/ops"};
}

inline kiln::Options options(const std::filesystem::path& overlay, kiln::MissPolicy on_miss = kiln::MissPolicy::tune) {
  kiln::Options options;
  options.overlay = overlay;
  options.on_miss = on_miss;
  options.template_paths = test_ops();
  options.compile_workers = 2;
  options.compile_ahead = 0;  // ahead_test.cpp
  return options;
}

/// y = x * factor of the op `scale`, or one like it, in f32, at any sizes, checked after each launch.
class ScaleCall {
 public:
  ScaleCall(const kiln::Engine& engine, std::int64_t rows, std::int64_t cols, std::size_t misalignment = 0,
            const char* name = "scale")
      : op(engine.op(name)),
        problem(op.problem({{"rows", rows}, {"cols", cols}, {"dtype", "f32"}})),
        values_(ramp(static_cast<std::size_t>(rows * cols))),
        x_(values_.size()),
        y_(values_.size()) {
    x_.upload(values_, misalignment);
    arguments = op.arguments({{"x", x_.address(misalignment)}, {"y", y_.address()}, {"factor", 2.0}});
  }
  /// Gives x other values than another call has.
  void add_to_input(float amount) {
    for (float& each : values_) each += amount;
    x_.upload(values_);
  }
  kiln::Origin launch(kiln::Stream stream) const {
    y_.upload(std::vector<float>(values_.size(), NAN));
    const kiln::Origin origin = op.launch(problem, arguments, stream);
    check();
    return origin;
  }
  void check() const {
    const std::vector<float> got = y_.download();
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] != 2 * values_[i]) FAIL_CHECK("element ", i, " is ", got[i], ", expected ", 2 * values_[i]);
      if (got[i] != 2 * values_[i]) return;
    }
  }
  void poison() const { y_.upload(std::vector<float>(values_.size(), NAN)); }

  kiln::Op op;
  kiln::Problem problem;
  kiln::Arguments arguments;

 private:
  std::vector<float> values_;
  Floats x_, y_;
};

/// The error that `work` throws; fails when it throws none.
template <typename Work>
kiln::Error error_of(Work work) {
  try {
    work();
  } catch (const kiln::Error& error) {
    return error;
  }
  FAIL("no error was thrown");
  std::abort();
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace e2e

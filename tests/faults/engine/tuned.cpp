#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

void tune_into(const fs::path& path) {
  const Machine machine;
  const Engine engine(e2e::options(path));
  ScaleCall(engine, 64, 128).launch(machine.stream());
  REQUIRE(engine.stats().tunes == 1);
}

}  // namespace

fs::path tuned_file() {
  const char* written = std::getenv("KILN_FAULTS_TUNED");
  if (written != nullptr && fs::exists(written)) return written;
  static const TemporaryFolder folder;
  const fs::path path = folder / "tuned.kiln";
  if (!fs::exists(path)) tune_into(path);
  return path;
}

TEST_CASE("setup: one bucket of the op `scale` is tuned" * doctest::skip()) {
  const char* path = std::getenv("KILN_FAULTS_TUNED");
  REQUIRE(path != nullptr);
  fs::remove(path);
  const TemporaryFolder folder;  // the file's own folder may be one that others can write, where no overlay is kept
  tune_into(folder / "tuned.kiln");
  fs::copy_file(folder / "tuned.kiln", path);
}

}  // namespace kiln::faults

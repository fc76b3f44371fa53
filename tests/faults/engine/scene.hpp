// An engine whose overlay fails while it runs, and what must go on all the same.
#pragma once

#include "faults/engine/fixture.hpp"

namespace kiln::faults {

/// The op `scale` with three candidates, all of whose machine code lies in a base: so a tune compiles nothing. The base also has
/// the record of 64 x 128. In a child that may not read tuned_file(), FAULTS_BASE names a copy.
class Scene {
 public:
  Scene() : op_(folder_) {
    op_.edit("tiled.toml", "threads = [64, 128, 256]", "threads = [64, 128]");
    op_.edit("tiled.toml", "\"cols % vector == 0\"",
             "\"threads * vector != 256 && threads * vector != 128\", \"cols % vector == 0\"");
    const char* given = std::getenv("FAULTS_BASE");
    fs::copy_file(given != nullptr ? fs::path(given) : tuned_file(), folder_ / "base.kiln");
  }
  [[nodiscard]] Options options(const fs::path& overlay) const {
    Options chosen = op_.options(overlay);
    chosen.bases = {folder_ / "base.kiln"};
    return chosen;
  }
  /// Where an overlay may lie.
  [[nodiscard]] fs::path overlay() const { return folder_ / "overlay.kiln"; }

 private:
  TemporaryFolder folder_;
  CopiedOp op_;
};

/// These options, with tunes in worker processes; tunes in the background do not pause.
inline Options with_worker(Options options, MissPolicy on_miss = MissPolicy::tune) {
  options.on_miss = on_miss;
  options.worker = KILN_WORKER_PROGRAM;
  options.background_share = 1;
  return options;
}

/// A bucket of the base, one that is tuned, that one again, and a size that the default must serve: right results, nothing thrown.
inline void check_goes_on(const Engine& engine, Stream stream, std::int64_t rows = 32) {
  CHECK_NOTHROW(ScaleCall(engine, 64, 128).launch(stream));
  const ScaleCall call(engine, rows, 128);
  CHECK_NOTHROW(call.launch(stream));
  CHECK(call.launch(stream) == Origin::hot);
  CHECK(ScaleCall(engine, rows, 127).launch(stream) == Origin::default_);
}

/// The overlay's failure is said, once, however often it is met: that it cannot be written, and, when `reads_too`, perhaps
/// that it cannot be read.
inline void check_said_once(const Engine& engine, Stream stream, bool reads_too = false) {
  const std::vector<std::string> said = engine.warnings();
  CAPTURE(said.empty() ? "" : said.front());
  CHECK(!said.empty());
  CHECK(said.size() <= (reads_too ? 2 : 1));
  check_goes_on(engine, stream, 16);
  CHECK(engine.warnings() == said);
}

}  // namespace kiln::faults

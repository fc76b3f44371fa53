// The standard output full, closed, or a pipe that nobody reads.
#include "faults/engine/streams.hpp"
#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"

namespace kiln::faults {
namespace {

constexpr Streams broken_outputs[] = {{.output = Sink::full},
                                      {.output = Sink::closed},
                                      {.output = Sink::broken_pipe},
                                      {.output = Sink::broken_pipe, .sigpipe_ignored = true}};

/// What the command keeps is kept whatever the output is, and the exit status tells that the output is lost.
std::int64_t check_says_that_output_is_lost(const CommandScene& scene, const std::string& words,
                                            std::span<const Streams> all) {
  const Ended usual = scene.run(words, {});
  for (const Streams& streams : all) {
    const Ended ended = scene.run(words, streams);
    CAPTURE(words);
    CAPTURE(to_string(streams));
    CHECK(ended.files == usual.files);
    CAPTURE(ended.errors);
    if (usual.output.empty()) {
      CHECK(ended.status == usual.status);
    } else if (streams.output == Sink::broken_pipe) {
      CHECK(ended.status == 141);
      CHECK(!contains(ended.errors, "standard output"));
    } else {
      CHECK(ended.status == 4);
      CHECK(contains(ended.errors, "the standard output cannot be written"));
    }
  }
  return static_cast<std::int64_t>(all.size());
}

}  // namespace

TEST_CASE("fault 42: each command whose output is lost says so, however little it is, and keeps its work") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const CommandScene scene;
  std::int64_t cases = 0;
  for (const auto& [command, line] : command_lines())
    cases += check_says_that_output_is_lost(scene, line.words, broken_outputs) +
             check_says_that_output_is_lost(scene, line.words + " --json", in_turn(broken_outputs));
  tally(42, cases, "commands whose standard output cannot be written");
}

TEST_CASE("fault 42: a help or a version that is lost is said") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const CommandScene scene;
  std::int64_t cases = check_says_that_output_is_lost(scene, "--version", broken_outputs);
  for (const auto& [command, line] : command_lines())
    cases += check_says_that_output_is_lost(scene, command + " --help", in_turn(broken_outputs));
  tally(42, cases, "helps that cannot be written");
}

TEST_CASE("fault 42: with no stream open at all a tune keeps its records, and no file takes a stream's place") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const CommandScene scene;
  const std::string words = "tune scale rows=32 cols=128 dtype=f32 --json";
  const Ended usual = scene.run(words, {});
  const Ended ended = scene.run(words + " <&-", {.output = Sink::closed, .errors = Sink::closed});
  CHECK(ended.status == 4);
  CHECK(ended.files == usual.files);
  tally(42, 1, "tunes without any stream");
}

}  // namespace kiln::faults

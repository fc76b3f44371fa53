// The standard error closed, full, or a pipe that nobody reads.
#include "faults/engine/streams.hpp"
#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"

namespace kiln::faults {
namespace {

constexpr Streams broken_errors[] = {{.errors = Sink::closed},
                                     {.errors = Sink::full},
                                     {.errors = Sink::broken_pipe},
                                     {.errors = Sink::broken_pipe, .sigpipe_ignored = true}};

/// Runs `line` with each of them: its work, output and exit status are as without. Gives how many were tried.
std::int64_t check_goes_on_without_errors(const CommandScene& scene, const std::string& words, bool timed) {
  const Ended usual = scene.run(words, {});
  for (const Streams& streams : broken_errors) {
    const Ended ended = scene.run(words, streams);
    CAPTURE(words);
    CAPTURE(to_string(streams));
    CHECK(ended.status == usual.status);
    CHECK(ended.files == usual.files);
    if (!timed) CHECK(ended.output == usual.output);
  }
  return std::size(broken_errors);
}

}  // namespace

TEST_CASE("fault 41: each command does its work where the standard error cannot be written") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const CommandScene scene;
  std::int64_t cases = 0;
  for (const auto& [command, line] : command_lines()) {
    const std::string& words = line.words;
    CHECK_MESSAGE(scene.run(words, {}).status <= 1, "kiln ", words, " is no good example");
    cases += check_goes_on_without_errors(scene, words, line.timed);
  }
  tally(41, cases, "commands whose standard error cannot be written");
}

TEST_CASE("fault 41: each command's error has its exit status where the standard error cannot be written") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const CommandScene scene;
  std::int64_t cases = 0;
  for (const auto& [command, line] : command_lines())
    for (const char* wrong : {" --no-such-option", " --base @/none.kiln"})
      cases += check_goes_on_without_errors(scene, command + wrong, line.timed);
  for (const char* words : {"", "nonsense", "explain scale rows=1", "cache verify @/trace --json",
                            "tune scale rows=1 cols=1 --json --device 1000"})
    cases += check_goes_on_without_errors(scene, words, false);
  tally(41, cases, "errors of commands whose standard error cannot be written");
}

}  // namespace kiln::faults

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

/// Runs `line` with these: its work, output and exit status are as usual. Gives how many were tried.
std::int64_t check_goes_on_without_errors(const CommandScene& scene, const std::string& words, bool timed,
                                          const Ended& usual, std::span<const Streams> all) {
  for (const Streams& streams : all) {
    const Ended ended = scene.run(words, streams);
    CAPTURE(words);
    CAPTURE(to_string(streams));
    CHECK(ended.status == usual.status);
    CHECK(ended.files == usual.files);
    if (!timed) CHECK(ended.output == usual.output);
  }
  return static_cast<std::int64_t>(all.size());
}

}  // namespace

TEST_CASE("fault 41: each command does its work where the standard error cannot be written") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const CommandScene scene;
  std::int64_t cases = 0;
  for (const auto& [command, line] : command_lines()) {
    const std::string& words = line.words;
    const Ended usual = scene.run(words, {});
    CHECK_MESSAGE(usual.status <= 1, "kiln ", words, " is no good example");
    cases += check_goes_on_without_errors(scene, words, line.timed, usual, broken_errors);
  }
  tally(41, cases, "commands whose standard error cannot be written");
}

TEST_CASE("fault 41: each command's error has its exit status where the standard error cannot be written") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const CommandScene scene;
  std::int64_t cases = 0;
  for (const auto& [command, line] : command_lines())
    for (const char* wrong : {" --no-such-option", " --base @/none.kiln"})
      cases += check_goes_on_without_errors(scene, command + wrong, line.timed, scene.run(command + wrong, {}),
                                            in_turn(broken_errors));
  for (const char* words : {"", "nonsense", "explain scale rows=1", "cache verify @/trace --json",
                            "tune scale rows=1 cols=1 --json --device 1000"})
    cases += check_goes_on_without_errors(scene, words, false, scene.run(words, {}), broken_errors);
  tally(41, cases, "errors of commands whose standard error cannot be written");
}

}  // namespace kiln::faults

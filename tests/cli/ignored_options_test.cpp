// Options that a command would accept and ignore beside others.
#include "command.hpp"

using namespace kiln::testing;

TEST_CASE("an option that a command would ignore is refused") {
  const Command command;
  const std::string trace = command.path("one.trace", "rms_norm rows=8 cols=64\n"),
                    file = command.path("a.jsonl", "\n"),
                    workload =
                        command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = 8, cols = 64 }\n");
  const std::string advice = " for tuning, which needs the GPU; leave ";
  for (const char* option : {"--force", "--devices all", "--ranks 2", "--strategy racing", "--trials 5", "--seconds 1",
                             "--seed 1", "--samples s.jsonl"})
    for (const char* on : {" --arch sm_90a ", " --device-class H200 "}) {
      const std::string name = std::string(option).substr(0, std::string(option).find(' '));
      check_refused(command.run("prewarm " + workload + on + option), 2, name + " is" + advice + "it out");
    }
  check_refused(command.run("prewarm " + workload + " --arch sm_90a --force --seed 1"), 2,
                "--seed, --force are" + advice + "them out, or leave out --arch and --device-class");
  check_refused(command.run("replay --dry-run --verify --device-class H200 " + trace), 2,
                "--verify checks the results of launches, and --dry-run launches nothing");
  for (const char* option : {"--median", "--sigma"})
    check_refused(
        command.run("trace rms_norm rows=1..64 cols=64 --distribution uniform " + std::string(option) + " 1.5"), 2,
        std::string(option) + " is of lognormal sizes, and --distribution uniform was given");
  const std::string few = "trace rms_norm rows=1..4 cols=64 --count 5";
  check_refused(command.run(few), 2, "give wider ranges or a larger --sigma\n");
  check_refused(command.run(few + " --distribution uniform"), 2, "give wider ranges\n");
  for (const std::string& words : {"cache ls " + file, "cache stats " + file, "cache show rms_norm --file " + file}) {
    check_refused(command.run(words + " --base " + file), 2,
                  "is read alone, without the overlay and the bases; leave --base");
    check_refused(command.run(words + " --overlay " + file), 2, "leave --overlay out");
    CHECK(command.run(words + " --overlay ''").status == (words.starts_with("cache show") ? 1 : 0));
  }
  check_refused(command.run("cache ls --remote /tmp"), 2, "--remote is for --shared");
  check_refused(command.run("coverage --by time " + workload), 2, "--by requires --require");
}

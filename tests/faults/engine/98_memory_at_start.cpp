// Memory that fails while a command declares and reads its options.
#include "faults/engine/fixture.hpp"
#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"

namespace kiln::faults {

TEST_CASE("fault 98: memory that fails where options are read is told, with status 3") {
  if (address_sanitizer || thread_sanitizer) return skip("a sanitizer has an allocator of its own");
  const auto run = [](const std::string& which, const std::string& words) {
    return shell("LD_PRELOAD='" FAILING_MALLOC "' FAILING_MALLOC='" + which + "' '" KILN_COMMAND "' " + words);
  };
  std::int64_t cases = 0;
  for (const std::string words : {"--version", "--json no-such-command"}) {
    const Outcome whole = run("0", words);
    REQUIRE_MESSAGE(contains(whole.output, "allocations "), whole.output);
    const long count = std::stol(whole.output.substr(whole.output.rfind("allocations ") + 12));
    REQUIRE(count > 100);
    const long step = count / 12 + 1;
    for (const char* and_all_after : {"", "+"})
      for (long at = 1; at <= count; at += step) {
        const Outcome outcome = run(std::to_string(at) + and_all_after, words);
        CAPTURE(outcome.output);
        CAPTURE(at);
        CHECK(
            (outcome.status == 3 || (outcome.status == whole.status && *and_all_after == '\0') || outcome.status == 4));
        if (outcome.status == 3) CHECK(contains(outcome.output, "this machine's memory is full"));
        ++cases;
      }
    CHECK(run(std::to_string(count / 2), words).status == 3);
  }
  tally(98, cases, "allocations that fail where options are read");
}

}  // namespace kiln::faults

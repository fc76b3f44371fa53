// Ctrl-C, once and twice, in the middle of a pre-warm and of a tune.
#include <set>

#include "faults/engine/fixture.hpp"
#include "faults/engine/running.hpp"

namespace kiln::faults {
namespace {

std::set<std::string> keys_in(const fs::path& overlay) {
  std::set<std::string> keys;
  if (fs::exists(overlay))
    for (const store::Record& record : records_of(overlay)) keys.insert(record.key);
  return keys;
}

constexpr const char* finished = R"("event":"finished")";
constexpr const char* candidate = R"("event":"candidate")";

/// Interrupts `words` after one bucket is finished and another begun, then again in its next run, then lets it end: what was
/// finished is never tuned a second time.
void interrupt_twice_then_finish(const std::string& words, const fs::path& overlay, std::size_t buckets) {
  std::set<std::string> before;
  std::int64_t tuned = 0;
  for (int run = 0; run < 2; ++run) {
    Running command(words + " 2>&1");
    REQUIRE(command.wait_for(finished));
    REQUIRE(command.wait_for(candidate));
    command.interrupt();
    CHECK(command.status() == 130);
    CHECK_MESSAGE(contains(command.said(), R"({"error":{"kind":"interrupted")"), command.said());
    const std::set<std::string> now = keys_in(overlay);
    CHECK(std::includes(now.begin(), now.end(), before.begin(), before.end()));
    CHECK(now.size() > before.size());
    CHECK(now.size() < buckets);
    std::int64_t finishes = 0;
    for (std::size_t at = command.said().find(finished); at != std::string::npos;
         at = command.said().find(finished, at + 1))
      ++finishes;
    CHECK(static_cast<std::size_t>(finishes) == now.size() - before.size());
    tuned += finishes;
    before = now;
  }
  Running command(words);
  CHECK(command.status() == 0);
  std::int64_t finishes = 0;
  for (std::size_t at = command.said().find(finished); at != std::string::npos;
       at = command.said().find(finished, at + 1))
    ++finishes;
  CHECK(tuned + finishes == static_cast<std::int64_t>(buckets));
  CHECK(keys_in(overlay).size() == buckets);
}

}  // namespace

TEST_CASE("fault 38: a tune that is interrupted keeps what was finished, and running it again continues") {
  const TemporaryFolder folder;
  interrupt_twice_then_finish("tune scale rows=8,16,32,64 cols=128 dtype=f32 --json" + globals(folder),
                              folder / "overlay.kiln", 4);
  tally(38, 2, "interrupts of a tune");
}

TEST_CASE("fault 38: a pre-warm that is interrupted keeps what was finished, and running it again continues") {
  const TemporaryFolder folder;
  write(folder / "workload.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = [8, 16, 32, 64], cols = 128 }\ntypes = { dtype = [\"f32\"] }\n");
  const fs::path deployed = folder / "deployed.kiln";
  interrupt_twice_then_finish(
      "prewarm " + (folder / "workload.toml").string() + " -o " + deployed.string() + " --json" + globals(folder),
      folder / "overlay.kiln", 4);
  CHECK(keys_in(deployed).size() == 4);
  tally(38, 2, "interrupts of a pre-warm");
}

TEST_CASE("fault 38: a second Ctrl-C ends the command at once, and what was finished is kept all the same") {
  const TemporaryFolder folder;
  const std::string words = "tune scale rows=8,16,32 cols=128 dtype=f32 --json" + globals(folder);
  {
    Running command(words);
    REQUIRE(command.wait_for(finished));
    REQUIRE(command.wait_for(candidate));  // of the next bucket: the first one is written by then
    command.interrupt();
    command.interrupt();
    CHECK(command.status() == 130);
  }
  const std::size_t kept = keys_in(folder / "overlay.kiln").size();
  CHECK(kept >= 1);
  Running command(words);  // the first one's lease, if it was left behind, holds up nobody
  CHECK(command.status() == 0);
  CHECK(keys_in(folder / "overlay.kiln").size() == 3);
  tally(38, 2, "second interrupts");
}

TEST_CASE("fault 38: a pre-warm without a GPU that is interrupted keeps the machine code that was made") {
  const TemporaryFolder folder;
  write(folder / "workload.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = [64], cols = 128 }\ntypes = { dtype = [\"f32\", \"bf16\"] }\n");
  const fs::path overlay = tuned_overlay(folder);
  const std::string words = "prewarm " + (folder / "workload.toml").string() + " --arch sm_80 --device-class " +
                            "sm_80/mp108/l2_41943040/smem_166912/bus_5120" + globals(folder);
  const auto cubins = [&] { return store::File::open(overlay, store::Access::read_only)->stats().cubins; };
  const std::int64_t before = cubins();
  {
    Running command(words);
    for (int i = 0; i < 2000 && cubins() == before; ++i) usleep(5000);
    command.interrupt();
    const int status = command.status();
    CHECK((status == 130 || status == 1));  // 1: it was quicker, and some buckets have no record
  }
  const std::int64_t kept = cubins();
  CHECK(kept > before);
  const std::string said = expect(1, "kiln " + words + " --json");
  CHECK_MESSAGE(contains(said, "\"compiled\":" + std::to_string(cubins() - kept)), said);
  tally(38, 1, "interrupts of a pre-warm without a GPU");
}

TEST_CASE("fault 38: an interrupted pre-warm says whether what it compiled is kept") {
  const TemporaryFolder folder;
  write(
      folder / "workload.toml",
      "[[workload]]\nop = \"scale\"\naxes = { rows = [64], cols = [128, 4096] }\ntypes = { dtype = [\"f32\", \"bf16\"] }\n");
  std::string overlay, said;
  SUBCASE("by an overlay") {
    overlay = own_overlay(folder);
    said = "; the overlay keeps what was compiled, and the same command continues";
  }
  SUBCASE("by an overlay in memory") {
    overlay = " --overlay '' ";
    said = "; nothing is kept: the overlay is in memory, as its empty path asks; name a file with --overlay";
  }
  Running command("prewarm " + (folder / "workload.toml").string() + " --arch sm_80 --device-class " +
                  "sm_80/mp108/l2_41943040/smem_166912/bus_5120 -o " + (folder / "out.kiln").string() + overlay +
                  own_ops() + " 2>&1");
  REQUIRE(command.wait_for("machine code "));
  command.interrupt();
  CHECK(command.status() == 130);
  CHECK_MESSAGE(contains(command.said(), said), command.said());
  CHECK(!fs::exists(folder / "out.kiln"));
  tally(38, 1, "interrupts of a pre-warm that say what is kept");
}

TEST_CASE("fault 38: a signal that a shell has its background command ignore does not end it") {
  const TemporaryFolder folder;
  const std::string tune = "'" KILN_COMMAND "' tune scale rows=1..512 cols=128 dtype=f32 -q" + globals(folder);
  const std::string output = expect(0, "(trap '' INT; exec " + tune + ") & sleep 0.3; kill -INT $!; wait $!");
  CHECK(contains(output, "rows=512"));
  tally(38, 1, "signals that are ignored");
}

}  // namespace kiln::faults

// Workspaces of streams that come and go: device memory is bounded and returns.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

constexpr std::int64_t block = std::int64_t{1024} * 128 * 4;  // of the bucket's upper edge

std::vector<Stream> burst(const ScaleCall& call, int count) {
  std::vector<Stream> streams(static_cast<std::size_t>(count));
  for (Stream& each : streams) {
    REQUIRE(driver_call<Stream*, unsigned>("cuStreamCreate", &each, 1U) == 0);
    call.op.launch(call.problem, call.arguments, each);
  }
  return streams;
}
void destroy(const std::vector<Stream>& streams) {
  for (Stream each : streams) REQUIRE(driver_call<Stream>("cuStreamDestroy_v2", each) == 0);
}

}  // namespace

TEST_CASE("fault 67: memory of streams that are gone returns, and trim frees the rest") {
  const Machine machine;
  control("kernel wrong scale_tiled");  // so that the implementation with a workspace wins
  const Engine engine(options(""));
  const ScaleCall call(engine, 1000, 128);
  REQUIRE(call.op.plan(call.problem).implementation() == "plain");
  static_cast<void>(engine.trim());
  const std::int64_t before = query("memory");
  constexpr int bursts = 4, streams = 200;
  for (int i = 0; i < bursts; ++i) {
    const std::vector<Stream> all = burst(call, streams);
    CHECK(engine.stats().workspace_bytes == query("memory") - before);
    CHECK(engine.stats().workspace_bytes < streams * block + (std::int64_t{64} << 20));
    destroy(all);
  }
  CHECK(engine.trim() > 0);
  CHECK(query("memory") == before);
  call.launch(machine.stream());
  tally(67, bursts * streams, "streams that come and go");
}

TEST_CASE("fault 67: a limit bounds the memory of streams that live, and each launch is right") {
  const Machine machine;
  control("kernel wrong scale_tiled");
  Options chosen = options("");
  chosen.workspace_limit_bytes = 10 * block;
  const Engine engine(chosen);
  const ScaleCall call(engine, 1000, 128);
  const std::vector<Stream> all = burst(call, 50);
  for (Stream each : all) {
    call.launch(each);
    CHECK(engine.stats().workspace_bytes <= 10 * block);
  }
  destroy(all);
  tally(67, 50, "streams over the limit");
}

}  // namespace kiln::faults

// NCCL's communicator of a team, where a rank gives up waiting for the others.
#include "team/nccl_communicator.hpp"

#include <doctest/doctest.h>

#include <thread>

#include "fake_cuda/fixture.hpp"
#include "kiln/error.hpp"
#include "team/ranks.hpp"

using namespace kiln;
using namespace kiln::test;
using fake_cuda_tests::query;
using std::chrono::milliseconds;

namespace {

/// Waits for the fake driver to retain so many contexts.
bool comes_to_retain(std::int64_t contexts) {
  for (int waits = 0; waits < 500 && query("contexts") != contexts; ++waits)
    std::this_thread::sleep_for(milliseconds(20));
  return query("contexts") == contexts;
}

}  // namespace

TEST_CASE("a thread that stays in NCCL keeps the device's context until the others have come") {
  cuda::Driver::get();
  const std::string id = cuda::Nccl::find() != nullptr ? team::NcclCommunicator::unique_id() : std::string();
  REQUIRE_FALSE(id.empty());
  Ranks ranks;
  ranks.begin([&] {
    std::string said;
    try {
      const cuda::Context context(0);
      const team::NcclCommunicator made(id, 0, 2, context, {milliseconds(300), [] { return false; }});
    } catch (const Error& error) {
      said = to_string(error.kind());
    }
    said += fmt::format(", {} retained", query("contexts"));
    Ranks::say('r');
    return said + (comes_to_retain(0) ? ", then none" : ", and stays so");
  });
  ranks.await(0, 'r');
  ranks.begin([&] {
    const cuda::Context context(0);
    const team::NcclCommunicator made(id, 1, 2, context, {ample, [] { return false; }});
    return std::string("joined");
  });
  CHECK(ranks.outcome(1) == "joined");
  CHECK(ranks.outcome(0) == "no_nccl, 1 retained, then none");
}

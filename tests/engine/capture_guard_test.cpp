// Whether a stream captures, and what it lacked. With whatever driver there is: the fake one in the build's own tests.
#include "engine/capture_guard.hpp"

#include <doctest/doctest.h>

#include "cuda/driver_api.hpp"
#include "engine/workspaces.hpp"
#include "kiln/error.hpp"

using namespace kiln;
using namespace kiln::engine;

namespace {

const bool no_driver = cuda::Driver::find() == nullptr;

struct Here {
  cuda::Context context{0};
  cuda::Context::Scope scope{context};
  cuda::Stream first, second;
};

}  // namespace

TEST_CASE("a stream is asked whether it captures, and gets no workspace while it does" * doctest::skip(no_driver)) {
  const Here here;
  const CaptureGuard guard(here.context, "rows");
  CHECK_FALSE(guard.captures(here.first.handle()));
  const cuda::Driver& driver = cuda::Driver::get();
  REQUIRE(driver.cuStreamBeginCapture_v2(here.first.handle(), CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(guard.captures(here.first.handle()));
  CHECK_FALSE(guard.captures(here.second.handle()));
  Workspaces workspaces(1024, false);
  CHECK(guard.make_workspace(workspaces, here.first.handle()) == 0);
  CHECK(guard.make_workspace(workspaces, here.second.handle()) != 0);
  CUgraph graph = nullptr;
  REQUIRE(driver.cuStreamEndCapture(here.first.handle(), &graph) == CUDA_SUCCESS);
  driver.cuGraphDestroy(graph);
}

// Device memory by stream. With whatever driver there is: the fake one in the build's own tests.
#include "engine/workspaces.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "cuda/driver_api.hpp"
#include "kiln/error.hpp"

using namespace kiln;
using namespace kiln::engine;

namespace {

const bool without_driver = cuda::Driver::find() == nullptr;

struct TwoStreams {
  cuda::Context context{0};
  cuda::Context::Scope scope{context};
  cuda::Stream first, second;
};

CUstream own_default_stream() { return reinterpret_cast<CUstream>(std::uintptr_t{2}); }  // CU_STREAM_PER_THREAD

}  // namespace

TEST_CASE("a stream gets a workspace of its own once, and finds it again" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(1024, true);
  CHECK(workspaces.find(here.first.handle()) == 0);
  CHECK_FALSE(workspaces.serves(here.first.handle()));
  const CUdeviceptr made = workspaces.make(here.first.handle());
  CHECK(made != 0);
  CHECK(workspaces.make(here.first.handle()) == made);
  CHECK(workspaces.find(here.first.handle()) == made);
  CHECK(workspaces.serves(here.first.handle()));
  CHECK_FALSE(workspaces.serves(here.second.handle()));
  CHECK(workspaces.make(here.second.handle()) != made);
}

TEST_CASE("workspaces are made for the streams that others have or noted" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces noted(0, false), own(1024, false);
  noted.make(here.first.handle());
  CHECK(noted.serves(here.second.handle()));  // one of no bytes serves any stream
  own.make_as(noted);
  CHECK(own.serves(here.first.handle()));
  CHECK_FALSE(own.serves(here.second.handle()));
}

TEST_CASE("a zeroed workspace is zeros as soon as it is made" * doctest::skip(without_driver)) {
  const TwoStreams here;
  constexpr std::size_t bytes = 512;
  {  // what the next allocation may be given again
    const cuda::Buffer used(bytes);
    used.fill_bytes(0xFF, here.first.handle());
    here.first.synchronize();
  }
  Workspaces workspaces(bytes, true);
  std::vector<unsigned char> found(bytes, 0xFF);
  const CUdeviceptr made = workspaces.make(here.first.handle());
  REQUIRE(cuda::Driver::get().cuMemcpyDtoH_v2(found.data(), made, bytes) == CUDA_SUCCESS);
  CHECK(found == std::vector<unsigned char>(bytes, 0));
}

TEST_CASE("threads that launch on their own default streams have a workspace each" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(1024, false);
  const CUdeviceptr made = workspaces.make(own_default_stream());
  CUdeviceptr before = 1, elsewhere = 0;
  std::thread([&] {
    const cuda::Context::Scope scope(here.context);
    before = workspaces.find(own_default_stream());
    elsewhere = workspaces.make(own_default_stream());
  }).join();
  CHECK(before == 0);
  CHECK(elsewhere != 0);
  CHECK(elsewhere != made);
  CHECK(workspaces.find(own_default_stream()) == made);
}

TEST_CASE("threads that ask for one stream's workspace at once get the same" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(1024, false);
  std::vector<CUdeviceptr> made(8, 0);
  std::vector<std::thread> threads;
  for (CUdeviceptr& each : made)
    threads.emplace_back([&] {
      const cuda::Context::Scope scope(here.context);
      each = workspaces.make(here.first.handle());
    });
  for (std::thread& each : threads) each.join();
  CHECK(made.front() != 0);
  CHECK(made == std::vector<CUdeviceptr>(made.size(), made.front()));
}

TEST_CASE("memory that cannot be had is an error, and leaves the stream without a workspace" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(std::int64_t{1} << 50, false);
  try {
    workspaces.make(here.first.handle());
    FAIL("a petabyte was allocated");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::out_of_memory);
  }
  CHECK_FALSE(workspaces.serves(here.first.handle()));
}

TEST_CASE("plans of one stream share a block that is as large as the largest of them needs" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  SharedWorkspaces shared;
  Workspaces small(0, false, 1024, shared), large(256, false, 4096, shared);
  shared.note(1024);
  shared.note(4096);
  small.make(here.first.handle());
  large.make(here.first.handle());
  const jit::WorkspaceBlocks of_small = small.blocks(here.first.handle()), of_large = large.blocks(here.first.handle());
  CHECK(of_small.own == 0);
  CHECK(of_small.shared != 0);
  CHECK(of_large.shared == of_small.shared);
  CHECK(of_large.own != 0);
  CHECK(of_large.own != of_large.shared);
  CHECK_FALSE(small.serves(here.second.handle()));
  small.make(here.second.handle());
  CHECK(small.blocks(here.second.handle()).shared != of_small.shared);
}

TEST_CASE("a larger plan gives the stream a new block, and the older one stays allocated" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  SharedWorkspaces shared;
  Workspaces small(0, false, 1024, shared), large(0, false, 4096, shared);
  small.make(here.first.handle());
  const CUdeviceptr before = small.blocks(here.first.handle()).shared;
  CHECK_FALSE(large.serves(here.first.handle()));
  large.make(here.first.handle());
  const CUdeviceptr after = large.blocks(here.first.handle()).shared;
  CHECK(after != before);
  CHECK(small.blocks(here.first.handle()).shared == after);
  const cuda::Driver& driver = cuda::Driver::get();
  CHECK(driver.cuMemsetD8Async(before, 0, 1024, here.first.handle()) == CUDA_SUCCESS);
  CHECK(driver.cuMemsetD8Async(after, 0, 4096, here.first.handle()) == CUDA_SUCCESS);
  here.first.synchronize();
}

TEST_CASE("where memory lacks for the largest plan, a smaller one gets what it needs" * doctest::skip(without_driver)) {
  const TwoStreams here;
  SharedWorkspaces shared;
  Workspaces small(0, false, 1024, shared), large(0, false, std::int64_t{1} << 50, shared);
  shared.note(std::int64_t{1} << 50);
  small.make(here.first.handle());
  CHECK(small.serves(here.first.handle()));
  CHECK_THROWS_AS(large.make(here.first.handle()), Error);
  CHECK_FALSE(large.serves(here.first.handle()));
}

TEST_CASE("the streams of a plan that is replaced get the shared block of the plan that replaces it" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  SharedWorkspaces shared;
  Workspaces replaced(0, false, 1024, shared), by(0, false, 4096, shared);
  replaced.make(here.first.handle());
  by.make_as(replaced);
  CHECK(by.serves(here.first.handle()));
  CHECK_FALSE(by.serves(here.second.handle()));
}

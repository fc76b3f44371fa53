// Device memory by stream. With whatever driver there is: the fake one in the build's own tests.
#include "plan/workspaces.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "cuda/driver_api.hpp"
#include "kiln/error.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::plan;

namespace {

const bool without_driver = cuda::Driver::find() == nullptr;
constexpr std::int64_t no_limit = std::int64_t{1} << 60;
constexpr WorkspaceNeeds small{1024, 0}, large{4096, 0};

struct TwoStreams {
  cuda::Context context{0};
  cuda::Context::Scope scope{context};
  cuda::RelaxedCapture relaxed;
  cuda::Stream first, second;
};

CUstream own_default_stream() { return reinterpret_cast<CUstream>(std::uintptr_t{2}); }  // CU_STREAM_PER_THREAD

/// The stream's blocks, zeros where it has none as large as `needs`.
jit::WorkspaceBlocks found(const Workspaces& workspaces, CUstream stream, const WorkspaceNeeds& needs) {
  cuda::StreamIdentity identity;
  REQUIRE(cuda::identify(stream, identity) == CUDA_SUCCESS);
  return workspaces.find(identity, needs).blocks;
}

CUdeviceptr made(Workspaces& workspaces, CUstream stream, const WorkspaceNeeds& needs = small) {
  workspaces.make(stream, needs);
  return found(workspaces, stream, needs).scratch;
}

/// A graph of nothing, which keeps what `work` made for the capturing stream.
class CapturedGraph {
 public:
  template <class Work>
  CapturedGraph(CUstream stream, Work work) {
    const cuda::Driver& driver = cuda::Driver::get();
    REQUIRE(driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    work();
    REQUIRE(driver.cuStreamEndCapture(stream, &graph_) == CUDA_SUCCESS);
    REQUIRE(driver.cuGraphInstantiateWithFlags(&executable_, graph_, 0) == CUDA_SUCCESS);
    REQUIRE(driver.cuGraphDestroy(graph_) == CUDA_SUCCESS);
  }
  void destroy() const { REQUIRE(cuda::Driver::get().cuGraphExecDestroy(executable_) == CUDA_SUCCESS); }

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace

TEST_CASE("a stream gets a workspace of its own once, and finds it again" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  CHECK(found(workspaces, here.first.handle(), small).scratch == 0);
  CHECK_FALSE(workspaces.serves(here.first.handle(), small));
  CHECK(workspaces.serves(here.first.handle(), {}));
  const CUdeviceptr block = made(workspaces, here.first.handle());
  CHECK(block != 0);
  CHECK(made(workspaces, here.first.handle()) == block);
  CHECK(workspaces.serves(here.first.handle(), small));
  CHECK_FALSE(workspaces.serves(here.second.handle(), small));
  CHECK(made(workspaces, here.second.handle()) != block);
  CHECK(workspaces.bytes() == 2048);
}

TEST_CASE("null and CU_STREAM_LEGACY are one stream" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  const CUdeviceptr block = made(workspaces, nullptr);
  CHECK(found(workspaces, reinterpret_cast<CUstream>(std::uintptr_t{1}), small).scratch == block);
}

TEST_CASE("zeroed workspaces are zeros as soon as they are made, and apart from the others" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  constexpr std::size_t bytes = 512;
  {  // what the next allocation may be given again
    const cuda::Buffer used(bytes);
    used.fill_bytes(0xFF, here.first.handle());
    here.first.synchronize();
  }
  Workspaces workspaces(no_limit);
  workspaces.make(here.first.handle(), {256, bytes});
  const jit::WorkspaceBlocks blocks = found(workspaces, here.first.handle(), {256, bytes});
  CHECK(blocks.scratch != 0);
  CHECK(blocks.scratch != blocks.zeroed);
  std::vector<unsigned char> contents(bytes, 0xFF);
  REQUIRE(cuda::Driver::get().cuMemcpyDtoH_v2(contents.data(), blocks.zeroed, bytes) == CUDA_SUCCESS);
  CHECK(contents == std::vector<unsigned char>(bytes, 0));
}

TEST_CASE("a plan that needs more gives the stream a larger block, which serves the smaller plans too" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  const CUdeviceptr before = made(workspaces, here.first.handle(), small);
  CHECK_FALSE(workspaces.serves(here.first.handle(), large));
  const CUdeviceptr after = made(workspaces, here.first.handle(), large);
  CHECK(after != before);
  CHECK(found(workspaces, here.first.handle(), small).scratch == after);
  CHECK(workspaces.bytes() == 1024 + 4096);  // a launch may have found the smaller one
  CHECK(workspaces.trim() == 1024 + 4096);
  CHECK(workspaces.bytes() == 0);
  CHECK_FALSE(workspaces.serves(here.first.handle(), small));
}

TEST_CASE("a stream that has the handle of another, which is gone, gets a block of its own" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  const cuda::Driver& driver = cuda::Driver::get();
  CUstream gone = nullptr, again = nullptr;
  REQUIRE(driver.cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  const CUdeviceptr block = made(workspaces, gone);
  REQUIRE(driver.cuStreamDestroy_v2(gone) == CUDA_SUCCESS);
  REQUIRE(driver.cuStreamCreate(&again, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  if (again == gone) {  // as every driver that was tried does
    CHECK_FALSE(workspaces.serves(again, small));
    CHECK(made(workspaces, again) != block);
    CHECK(workspaces.bytes() == 2048);
    static_cast<void>(workspaces.trim());
    CHECK(workspaces.bytes() == 0);
  }
  driver.cuStreamDestroy_v2(again);
}

TEST_CASE("threads that launch on their own default streams have a workspace each, which goes with the thread" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  const CUdeviceptr block = made(workspaces, own_default_stream());
  CUdeviceptr before = 1, elsewhere = 0;
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      const cuda::Context::Scope scope(here.context);
      before = found(workspaces, own_default_stream(), small).scratch;
      elsewhere = made(workspaces, own_default_stream());
    }).join();
    CHECK(before == 0);
    CHECK(elsewhere != 0);
    CHECK(elsewhere != block);
  }
  CHECK(found(workspaces, own_default_stream(), small).scratch == block);
  static_cast<void>(workspaces.trim());
}

TEST_CASE("a thread may end after the workspaces of its stream" * doctest::skip(without_driver)) {
  const TwoStreams here;
  std::atomic<bool> is_made = false, is_gone = false;
  std::thread thread;
  {
    Workspaces workspaces(no_limit);
    thread = std::thread([&] {
      const cuda::Context::Scope scope(here.context);
      made(workspaces, own_default_stream());
      is_made = true;
      is_made.notify_all();
      is_gone.wait(false);
    });
    is_made.wait(false);
  }
  is_gone = true;
  is_gone.notify_all();
  thread.join();
}

TEST_CASE("threads that ask for one stream's workspace at once get the same" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  std::vector<CUdeviceptr> blocks(8, 0);
  std::vector<std::thread> threads;
  for (CUdeviceptr& each : blocks)
    threads.emplace_back([&] {
      const cuda::Context::Scope scope(here.context);
      each = made(workspaces, here.first.handle());
    });
  for (std::thread& each : threads) each.join();
  CHECK(blocks.front() != 0);
  CHECK(blocks == std::vector<CUdeviceptr>(blocks.size(), blocks.front()));
}

TEST_CASE("hundreds of streams each find their own block" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  std::vector<cuda::Stream> streams(250);
  std::vector<CUdeviceptr> blocks;
  for (const cuda::Stream& each : streams) blocks.push_back(made(workspaces, each.handle()));
  for (std::size_t i = 0; i < streams.size(); ++i)
    CHECK(found(workspaces, streams[i].handle(), small).scratch == blocks[i]);
}

TEST_CASE("memory that cannot be had is an error, and leaves the stream without a workspace" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  try {
    workspaces.make(here.first.handle(), {std::int64_t{1} << 50, 0});
    FAIL("a petabyte was allocated");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::out_of_memory);
  }
  CHECK_FALSE(workspaces.serves(here.first.handle(), small));
  CHECK(workspaces.bytes() == 0);
}

TEST_CASE("past the limit the streams that launched least recently lose their blocks" * doctest::skip(without_driver)) {
  const TwoStreams here;
  const cuda::Stream third, fourth;
  Workspaces workspaces(3 * 1024);
  made(workspaces, here.first.handle());
  made(workspaces, here.second.handle());
  made(workspaces, third.handle());  // streams are as old as what was made since their last launch
  CHECK(found(workspaces, here.first.handle(), small).scratch != 0);  // a launch
  made(workspaces, fourth.handle());
  CHECK(workspaces.serves(here.first.handle(), small));
  CHECK_FALSE(workspaces.serves(here.second.handle(), small));
  CHECK(workspaces.serves(third.handle(), small));
  CHECK(workspaces.serves(fourth.handle(), small));
  CHECK(workspaces.bytes() == 3072);
  made(workspaces, third.handle(), large);  // more than the limit: what a launch needs it gets
  CHECK(workspaces.serves(third.handle(), large));
}

TEST_CASE("streams that go without a sign lose their blocks, and streams that take turns keep theirs" *
          doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  constexpr WorkspaceNeeds needs{std::int64_t{1} << 20, 0};
  std::vector<cuda::Stream> streams(600);  // all of which live, so that no handle is given again
  made(workspaces, here.first.handle(), needs);
  for (const cuda::Stream& each : streams) {
    CHECK(workspaces.serves(here.first.handle(), needs));  // as a launch between them finds
    workspaces.make(each.handle(), needs);
  }
  CHECK(workspaces.serves(here.first.handle(), needs));
  CHECK_FALSE(workspaces.serves(streams.front().handle(), needs));
  CHECK(workspaces.bytes() < std::int64_t{300} << 20);
  int lost = 0;
  for (int round = 0; round < 12; ++round) {
    lost = 0;
    for (const cuda::Stream& each : streams) {
      if (workspaces.serves(each.handle(), needs)) continue;
      ++lost;
      workspaces.make(each.handle(), needs);
    }
  }
  CHECK(lost == 0);
}

TEST_CASE("a capture has a block of its own, which its graph keeps" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  const CUstream stream = here.first.handle();
  const CUdeviceptr eager = made(workspaces, stream);
  CUdeviceptr first = 0, second = 0, larger = 0;
  const CapturedGraph one(stream, [&] {
    first = made(workspaces, stream);
    CHECK(made(workspaces, stream) == first);
    larger = made(workspaces, stream, large);
  });
  const CapturedGraph other(stream, [&] { second = made(workspaces, stream); });
  CHECK(first != 0);
  CHECK(first != eager);
  CHECK(larger != first);
  CHECK(second != eager);
  CHECK(second != first);
  CHECK(found(workspaces, stream, small).scratch == eager);
  CHECK(workspaces.bytes() == 3 * 1024 + 4096);
  CHECK(workspaces.trim() == 1024);  // the stream's
  one.destroy();
  CHECK(workspaces.trim() == 1024 + 4096);
  other.destroy();
  CHECK(workspaces.trim() == 1024);
}

TEST_CASE("a capture that is given up leaves its block to be freed" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  const cuda::Driver& driver = cuda::Driver::get();
  REQUIRE(driver.cuStreamBeginCapture_v2(here.first.handle(), CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  made(workspaces, here.first.handle());
  CHECK(driver.cuStreamSynchronize(here.first.handle()) != CUDA_SUCCESS);  // which no capture survives
  cuda::StreamIdentity identity;
  CHECK(cuda::identify(here.first.handle(), identity) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraph graph = nullptr;
  CHECK(driver.cuStreamEndCapture(here.first.handle(), &graph) != CUDA_SUCCESS);
  CHECK(workspaces.trim() == 1024);
}

TEST_CASE("a graph keeps the block of a thread's own stream after the thread" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  std::optional<CapturedGraph> graph;
  std::thread([&] {
    const cuda::Context::Scope scope(here.context);
    const cuda::RelaxedCapture relaxed;
    graph.emplace(own_default_stream(), [&] { made(workspaces, own_default_stream()); });
  }).join();
  CHECK(workspaces.trim() == 0);
  graph->destroy();
  CHECK(workspaces.trim() == 1024);
}

TEST_CASE("blocks of graphs leave streams theirs, whatever the limit" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(2 * 1024);
  const CapturedGraph graph(here.first.handle(), [&] { made(workspaces, here.first.handle(), large); });
  made(workspaces, here.first.handle());
  made(workspaces, here.second.handle());
  CHECK(workspaces.serves(here.first.handle(), small));
  CHECK(workspaces.serves(here.second.handle(), small));
  graph.destroy();
}

TEST_CASE("what a launch in flight may have found is freed after it" * doctest::skip(without_driver)) {
  const TwoStreams here;
  Workspaces workspaces(no_limit);
  made(workspaces, here.first.handle());
  for (const unsigned number : {jit::shared_thread_number, 7U}) {
    made(workspaces, here.first.handle());
    std::atomic<bool> is_inside = false, has_left = false;
    std::thread launching([&] {
      const LaunchesInFlight::Entered entered(workspaces.launches(), number);
      is_inside = true;
      is_inside.notify_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      has_left = true;
    });
    is_inside.wait(false);
    CHECK(workspaces.trim() == 1024);
    CHECK(has_left);
    launching.join();
  }
}

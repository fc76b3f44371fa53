// An Engine or a Tuner is made in a child of fork, whose parent's other threads launched: refused before the driver is called, whose locks one of
// them may have held.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "faults/engine/children.hpp"
#include "faults/engine/fixture.hpp"
#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

/// The public ways to the driver that need no engine of the parent.
bool are_all_refused(const Engine& of_parent) {
  const std::vector<int> devices = {0};
  return is_refused([&] { return Engine(options("")); }) && is_refused([&] { return Tuner(options("")); }) &&
         is_refused([&] { return Tuner(options(""), devices); }) && is_refused([&] { return Tuner(of_parent); }) &&
         is_refused([] { return cuda::devices(); }) && is_refused([] { return cuda::device_info(0); });
}

std::int64_t driver_calls() {
  std::int64_t calls = 0;
  for (const char* each :
       {"cuThreadExchangeStreamCaptureMode", "cuDeviceGetCount", "cuDeviceGet", "cuCtxPushCurrent_v2"})
    calls += query(std::string("calls ") + each);
  return calls;
}

/// Waits for threads of the engine's start, in whose calls fork may find the fake driver's lock: a child that asks it would wait permanently.
/// A sanitizer's own thread stays, so the wait ends after two seconds.
void wait_for_other_threads() {
  const auto others = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}) > 1; };
  for (int i = 0; i < 200 && others(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

TEST_CASE("fault 88: what a child makes is refused before the driver is called") {
  if (address_sanitizer) return skip(asan_allocator);
  const Machine machine;
  const Engine engine(options("", MissPolicy::nearest));
  wait_for_other_threads();
  CHECK(status_of_child([&] {
          const std::int64_t before = driver_calls();
          return are_all_refused(engine) && driver_calls() == before;
        }) == 0);
  tally(88, 6, "objects that a child makes");
}

TEST_CASE("fault 88: children of a parent whose threads launch are refused at once, and end") {
  if (address_sanitizer) return skip(asan_allocator);
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(tuned_overlay(folder), MissPolicy::nearest));
  const ScaleCall call(engine, 64, 128);
  call.launch(machine.stream());
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      driver_call<CUctx_st*>("cuCtxPushCurrent_v2", machine.context());
      while (!stop) call.op.launch(call.problem, call.arguments, machine.stream());
    });
  constexpr int forks = 40;
  int came_through = 0;
  for (int i = 0; i < forks; ++i) came_through += status_of_child([&] { return are_all_refused(engine); }) == 0 ? 1 : 0;
  stop = true;
  CHECK(came_through == forks);
  tally(88, forks, "children among threads that launch");
}

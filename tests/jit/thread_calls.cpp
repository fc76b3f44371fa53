#include "jit/thread_calls.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <thread>
#include <vector>

using kiln::jit::PassForm;
using kiln::jit::ThreadCall;
using kiln::jit::ThreadCalls;

namespace {

/// Returns the pass of a kernel that takes this many slots of the frame.
PassForm form_of(std::size_t slots) {
  PassForm form;
  form.config.blockDimX = 32;
  form.arguments = slots;
  for (std::size_t i = 0; i < slots; ++i)
    form.offsets[i] = static_cast<std::uint16_t>(offsetof(kiln::jit::CallFrame, slots) + i * sizeof(std::int64_t));
  return form;
}

std::vector<PassForm> two_passes() {
  std::vector<PassForm> passes;
  passes.push_back(form_of(1));
  passes.push_back(form_of(3));
  return passes;
}

}  // namespace

TEST_CASE("a thread finds its own call again, linked to its frame, and no other thread's") {
  const std::vector<PassForm> passes = two_passes();
  const ThreadCalls calls;
  const ThreadCall* const mine = calls.own(passes);
  REQUIRE(mine != nullptr);
  CHECK(calls.own(passes) == mine);
  for (std::size_t pass = 0; pass < 2; ++pass) {
    CHECK(mine->passes()[pass].config.blockDimX == 32);
    for (std::size_t i = 0; i < passes[pass].arguments; ++i)
      CHECK(mine->passes()[pass].parameters[i] == &mine->frame.slots[i]);
  }
  std::jthread([&] {
    const ThreadCall* const theirs = calls.own(passes);
    REQUIRE(theirs != nullptr);
    CHECK(theirs != mine);
    CHECK(theirs->passes()[1].parameters[2] == &theirs->frame.slots[2]);
  }).join();
}

TEST_CASE("threads that share a number keep no call") {
  const std::vector<PassForm> passes = two_passes();
  const ThreadCalls calls;
  std::latch all(kiln::jit::thread_numbers + 8);
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < kiln::jit::thread_numbers + 8; ++i)
    threads.emplace_back([&] {
      const bool shares = kiln::jit::thread_number() == kiln::jit::shared_thread_number;
      all.arrive_and_wait();  // all threads live at the same time
      CHECK((calls.own(passes) == nullptr) == shares);
    });
}

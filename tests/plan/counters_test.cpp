#include "plan/counters.hpp"

#include <doctest/doctest.h>

#include <barrier>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

using kiln::Origin;
using kiln::jit::shared_thread_number;
using kiln::jit::thread_number;
using kiln::jit::thread_numbers;
using kiln::plan::Counters;

namespace {

/// The numbers of `count` threads that live at the same time.
std::multiset<unsigned> numbers_of(int count) {
  std::multiset<unsigned> numbers;
  std::mutex mutex;
  std::barrier all_live(count);
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&] {
      const unsigned number = thread_number();
      {
        const std::lock_guard lock(mutex);
        numbers.insert(number);
      }
      all_live.arrive_and_wait();
    });
  threads.clear();
  return numbers;
}

}  // namespace

TEST_CASE("threads that live at once have different numbers, and threads that have ended leave theirs") {
  for (int turn = 0; turn < 10; ++turn) {
    const auto numbers = numbers_of(20);
    CHECK(std::set(numbers.begin(), numbers.end()).size() == 20);
    CHECK(numbers.count(shared_thread_number) == 0);
    CHECK(*numbers.rbegin() < thread_numbers);
  }
}

TEST_CASE("threads beyond the numbers that there are share one") {
  const auto numbers = numbers_of(static_cast<int>(thread_numbers) + 10);
  CHECK(numbers.count(shared_thread_number) >= 10);
  for (unsigned number = 1; number < thread_numbers; ++number) CHECK(numbers.count(number) <= 1);
}

TEST_CASE(
    "no launch is lost between threads, more of them than there are numbers, nor between those that follow each other") {
  Counters counters;
  constexpr int each = 1000, threads_at_once = static_cast<int>(thread_numbers) + 16;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < threads_at_once; ++i)
      threads.emplace_back([&] {
        for (int n = 0; n < each; ++n) counters.count(n % 2 == 0 ? Origin::hot : Origin::base);
      });
  }
  CHECK(counters.read().hot == 3 * threads_at_once * each / 2);
  CHECK(counters.read().base == 3 * threads_at_once * each / 2);
}

#include "jit/tensor_map.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

using kiln::jit::TensorMapCache;

namespace {

constexpr std::size_t words = 3;

TensorMapCache::Key key_of(const TensorMapCache& cache, std::uint64_t number) {
  TensorMapCache::Key key{};
  for (std::size_t i = 0; i < words; ++i) key.words[i] = number * (i + 1);
  cache.finish(key);
  return key;
}

/// Each word says the number and its own place.
CUtensorMap map_of(std::uint64_t number) {
  CUtensorMap map;
  for (std::size_t i = 0; i < std::size(map.opaque); ++i) map.opaque[i] = number << 8 | i;
  return map;
}

bool is(const CUtensorMap& map, std::uint64_t number) {
  const CUtensorMap expected = map_of(number);
  return std::memcmp(map.opaque, expected.opaque, sizeof expected.opaque) == 0;
}

/// How many of the numbers 1 to last are kept.
int kept(const TensorMapCache& cache, std::uint64_t last) {
  int count = 0;
  CUtensorMap map;
  for (std::uint64_t number = 1; number <= last; ++number)
    if (cache.find(key_of(cache, number), map)) {
      CHECK(is(map, number));
      ++count;
    }
  return count;
}

}  // namespace

TEST_CASE("a descriptor is found by all of its key and by nothing else") {
  TensorMapCache cache(words);
  CUtensorMap map;
  CHECK_FALSE(cache.find(key_of(cache, 0), map));  // empty entries have a key of zeros
  cache.keep(key_of(cache, 7), map_of(7));
  REQUIRE(cache.find(key_of(cache, 7), map));
  CHECK(is(map, 7));
  for (std::size_t word = 0; word < words; ++word) {
    TensorMapCache::Key other = key_of(cache, 7);
    other.words[word] += 1;  // the same set: the hash stays
    CHECK_FALSE(cache.find(other, map));
  }
}

TEST_CASE("many descriptors leave a bounded number, the last among them") {
  TensorMapCache cache(words);
  CUtensorMap map;
  for (std::uint64_t number = 1; number <= 10'000; ++number) {
    cache.keep(key_of(cache, number), map_of(number));
    REQUIRE(cache.find(key_of(cache, number), map));
  }
  CHECK(kept(cache, 10'000) <= 32);
  CHECK(kept(cache, 10'000) >= 24);
}

TEST_CASE("two descriptors that meet in a set are both kept while they alternate") {
  TensorMapCache cache(words);
  CUtensorMap map;
  TensorMapCache::Key a = key_of(cache, 1), b = key_of(cache, 2);
  b.hash = a.hash;
  cache.keep(a, map_of(1));
  cache.keep(b, map_of(2));
  REQUIRE(cache.find(a, map));
  CHECK(is(map, 1));
  REQUIRE(cache.find(b, map));
  CHECK(is(map, 2));
}

TEST_CASE("readers get whole descriptors of their key while writers replace them") {
  TensorMapCache cache(words);
  constexpr std::uint64_t numbers = 200;  // many more than there is room for
  std::atomic<bool> stop{false}, torn{false};
  std::atomic<std::int64_t> found{0};
  std::vector<std::jthread> readers, writers;
  for (int r = 0; r < 2; ++r)
    readers.emplace_back([&] {
      CUtensorMap map;
      while (!stop)
        for (std::uint64_t number = 1; number <= numbers; ++number)
          if (cache.find(key_of(cache, number), map)) {
            ++found;
            if (!is(map, number)) torn = true;
          }
    });
  for (std::uint64_t w = 0; w < 2; ++w)
    writers.emplace_back([&, w] {
      for (std::uint64_t turn = 0; turn < 20'000; ++turn) {
        const std::uint64_t number = 1 + (turn * 7 + w * 3) % numbers;
        cache.keep(key_of(cache, number), map_of(number));
      }
    });
  writers.clear();
  while (found == 0 && !torn) std::this_thread::yield();
  stop = true;
  readers.clear();
  CHECK_FALSE(torn.load());
}

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/attention/prepare.cuh"
#include "kernels.hpp"

namespace {

enum Case { equal, skewed, empty, one_long };

struct Lengths {
  std::vector<int> queries, keys;
};

/// The lengths of the sequences that attention_offsets makes of `queries` and `keys`, checked to fill these exactly.
Lengths packed(int batch, int queries, int keys, long long longest, unsigned long long seed, Case which) {
  std::vector<int> offsets[2] = {std::vector<int>(batch + 1, -1), std::vector<int>(batch + 1, -1)};
  emulator::launch({.grid = {2}, .block = {256}, .seed = 1}, [&] {
    attention_offsets(offsets[0].data(), offsets[1].data(), batch, queries, keys, longest, seed, which);
  });
  Lengths lengths;
  for (const bool of_keys : {false, true}) {
    const std::vector<int>& from = offsets[of_keys ? 1 : 0];
    CHECK(from.front() == 0);
    CHECK(from.back() == (of_keys ? keys : queries));
    CHECK(std::ranges::is_sorted(from));
    std::vector<int>& to = of_keys ? lengths.keys : lengths.queries;
    for (int i = 0; i < batch; ++i) to.push_back(from[i + 1] - from[i]);
  }
  return lengths;
}

TEST_CASE("packed lengths fill what there is, and no sequence has more than the longest queries") {
  for (const int batch : {1, 2, 3, 8, 300})
    for (const int tokens : {1, 4, 9, 1000})
      for (const Case which : {equal, skewed, empty, one_long}) {
        const int longest = std::min(tokens, 4 * ((tokens + batch - 1) / batch));
        const Lengths lengths = packed(batch, tokens, tokens + 3, longest, 12345678901ull, which);
        CHECK(std::ranges::max(lengths.queries) <= longest);
      }
}

TEST_CASE("packed lengths are those of their case") {
  const Lengths even = packed(8, 800, 1600, 400, 5, equal);
  CHECK(even.queries == std::vector<int>(8, 100));
  CHECK(even.keys == std::vector<int>(8, 200));

  const Lengths uneven = packed(8, 800, 800, 400, 5, skewed);
  CHECK(std::ranges::is_sorted(uneven.queries));
  CHECK(std::ranges::is_sorted(uneven.keys, std::greater()));
  CHECK(uneven.queries.front() < uneven.keys.front());

  const Lengths holes = packed(9, 900, 900, 400, 5, empty);
  CHECK(std::ranges::count(holes.queries, 0) == 6);
  bool has_blind_queries = false;
  for (int i = 0; i < 9; ++i) has_blind_queries |= holes.queries[i] > 0 && holes.keys[i] == 0;
  CHECK(has_blind_queries);

  const Lengths one = packed(8, 800, 800, 400, 5, one_long);
  CHECK(one.queries[5] == 400);
  CHECK(one.keys[5] == 800);
}

TEST_CASE(
    "values grow with the root of a key's place in its sequence, in each head, and beside the strides nothing is written") {
  constexpr int keys = 70, heads = 2, columns = 64, stride = 140, head_stride = 66;
  const std::vector<int> offsets = {0, 0, 50, 50, keys};
  std::vector<float> v(static_cast<std::size_t>(keys * stride), NAN);
  emulator::launch({.grid = {keys}, .block = {128}, .seed = 1}, [&] {
    attention_values<float, kiln::attention::Layout::packed>({v.data(), 0, stride, head_stride}, offsets.data(), 4,
                                                             keys, heads, columns, 7);
  });
  for (int key = 0; key < keys; ++key) {
    const double size = std::sqrt(1.0 + (key < 50 ? key : key - 50));
    for (int at = 0; at < stride; ++at) {
      const float value = v[static_cast<std::size_t>(key * stride + at)];
      CHECK(std::isnan(value) == (at % head_stride >= columns || at >= heads * head_stride));
    }
    for (int head = 0; head < heads; ++head) {
      double largest = 0;
      for (int column = 0; column < columns; ++column)
        largest = std::max(largest,
                           std::abs(double{v[static_cast<std::size_t>(key * stride + head * head_stride + column)]}));
      CHECK(largest <= size);
      CHECK(largest >= 0.8 * size);  // of 64 draws from [-1, 1)
    }
  }
}

}  // namespace

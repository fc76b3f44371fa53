// The order in which SortedTiles hands out the tiles of packed sequences.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "common/attention/sorted_tiles.cuh"

namespace {

using namespace kiln::attention;

constexpr int tile = 64, heads = 3;

/// The work of each block of a launch with `more` blocks than there are tiles.
template <Mask mask, Side side>
std::vector<Work> works_of(const std::vector<int>& lengths, int section, int more = 2) {
  std::vector<int> offsets(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  int tiles = 0;
  for (const int length : lengths) tiles += (length + tile - 1) / tile * heads;
  std::vector<Work> works(static_cast<std::size_t>(tiles + more));
  const Sequences sequences = {offsets.data(), offsets.data(), static_cast<int>(lengths.size()), offsets.back(),
                               offsets.back()};
  emulator::launch({.grid = {static_cast<unsigned>(works.size())}, .block = {32}, .seed = 1}, [&] {
    const Work found =
        find_work<Layout::packed, mask, tile, side>(sequences, heads, section, static_cast<int>(blockIdx.x));
    if (threadIdx.x == 0) works[blockIdx.x] = found;
  });
  return works;
}

/// How long a tile takes under a causal mask: the keys before a tile of queries, or the queries behind a tile of keys.
template <Side side>
int tiles_seen(const Work& work) {
  const int length = work.of.queries, from_end = (length - work.row + tile - 1) / tile;
  return side == Side::queries ? work.row / tile + 1 : from_end;
}

/// Whether each tile of each head of each sequence comes once, and nothing after them.
bool are_all(const std::vector<Work>& works, const std::vector<int>& lengths, int more = 2) {
  std::set<std::tuple<int, int, int>> seen;
  for (std::size_t i = 0; i + static_cast<std::size_t>(more) < works.size(); ++i) {
    const Work& work = works[i];
    if (work.exists == 0 || work.row % tile != 0 || work.row >= work.of.queries || work.head >= heads) return false;
    seen.emplace(work.of.first_query, work.row, work.head);
  }
  std::size_t tiles = 0;
  for (const int length : lengths) tiles += static_cast<std::size_t>((length + tile - 1) / tile * heads);
  const bool ends = std::all_of(works.end() - more, works.end(), [](const Work& work) { return work.exists == 0; });
  return seen.size() == tiles && ends;
}

template <Mask mask, Side side>
bool fall(const std::vector<Work>& works, int more = 2) {
  const auto longer = [](const Work& a, const Work& b) {
    return mask == Mask::causal ? tiles_seen<side>(a) > tiles_seen<side>(b)
                                : (a.of.queries + tile - 1) / tile > (b.of.queries + tile - 1) / tile;
  };
  return std::is_sorted(works.begin(), works.end() - more, longer);
}

}  // namespace

TEST_CASE("tiles of up to 32 sequences come the longest first, each once") {
  std::vector<int> many;
  for (int i = 0; i < 32; ++i) many.push_back(i * 37 % 300);
  for (const std::vector<int>& lengths : {std::vector<int>{200}, {1, 640, 64, 0, 65}, {0, 0}, many}) {
    CAPTURE(lengths.size());
    const auto queries = works_of<Mask::causal, Side::queries>(lengths, 0);
    CHECK(are_all(queries, lengths));
    CHECK(fall<Mask::causal, Side::queries>(queries));
    const auto keys = works_of<Mask::causal, Side::keys>(lengths, 0);
    CHECK(are_all(keys, lengths));
    CHECK(fall<Mask::causal, Side::keys>(keys));
    const auto whole = works_of<Mask::none, Side::queries>(lengths, 0);
    CHECK(are_all(whole, lengths));
    CHECK(fall<Mask::none, Side::queries>(whole));
  }
}

TEST_CASE("more sequences, and sections of heads, go sequence by sequence") {
  const std::vector<int> few = {70, 640, 64};
  std::vector<int> many(33, 70);
  many[20] = 640;
  for (const auto& [lengths, section] : {std::pair{many, 0}, {few, heads}}) {
    const auto works = works_of<Mask::causal, Side::keys>(lengths, section);
    CHECK(are_all(works, lengths));
    CHECK_FALSE(fall<Mask::causal, Side::keys>(works));
    CHECK(std::is_sorted(works.begin(), works.end() - 2,
                         [](const Work& a, const Work& b) { return a.of.first_key < b.of.first_key; }));
  }
}

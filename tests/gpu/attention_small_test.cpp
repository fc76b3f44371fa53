// Attention at sizes of a few tiles, a subcase a kind of kernel: what compute-sanitizer, which slows kernels 10 to 50 times, can take. A subcase
// is chosen by -sc, as in
//   compute-sanitizer --tool racecheck kiln_tests_gpu "-tc=*small: attention_forward*" "-sc=dropout"
// On an H100 memcheck finds nothing in any subcase, and racecheck nothing in forward and in decode. In backward racecheck names the facts of queries, at
// addresses from BackwardLayout::facts on. A warp stores these, one lane of it tells an mbarrier of them after __syncwarp, and others read
// after waiting for that mbarrier. racecheck counts arrivals of that lane alone, and takes the other lanes' stores for unordered. In copies of
// attention_wgmma_pair with a store out of bounds and a race in shared memory, both tools name the kernel.
#include <random>

#include "gpu/check_implementations.hpp"

namespace kiln::gpu_tests {
namespace {

struct Small {
  const char* name;
  std::vector<manifest::Setting> choices;
  const char* dim = "64";
  const char* queries = "150";
  std::vector<std::pair<const char*, std::int64_t>> values = {};  // of run-time values
  const char* heads = "2";                                        // of one key head
};

/// Three tiles of queries at most, and keys past a tile. Packed: two sequences, or one and a half.
void check_small(const char* name, const Small& small) {
  Fixture fixture;
  std::mt19937 generator(127);
  const manifest::Op& op = fixture.op(name);
  std::vector<manifest::Setting> all = {{"batch", "2"},          {"queries", small.queries}, {"keys", "200"},
                                        {"heads", small.heads},  {"key_heads", "1"},         {"head_dim", small.dim},
                                        {"value_dim", small.dim}};
  all.insert(all.end(), small.choices.begin(), small.choices.end());
  check_all(fixture, op, manifest::make_problem(op, all), placed(op, small.values), generator);
}

}  // namespace

TEST_CASE("attention, small: attention_forward is right") {
  const std::vector<Small> kinds = {
      {"plain", {{"mask", "causal"}}, "128"},
      {"pairs", {}, "128", "300"},  // of blocks; the last tile of queries has no neighbour
      {"odd", {{"mask", "causal"}}, "72"},
      {"packed", {{"mask", "causal"}, {"layout", "packed"}}},
      {"window", {{"mask", "window"}}},                       // both heads in a tile
      {"five", {{"mask", "causal"}}, "128", "150", {}, "5"},  // heads in a tile, which has rows of none
      {"seven", {{"mask", "causal"}, {"layout", "packed"}, {"sinks", "head"}}, "64", "150", {}, "7"},
      {"eight", {{"mask", "causal"}, {"layout", "packed"}, {"sinks", "head"}}, "64", "150", {{"from_end", 0}}, "8"},
      {"alibi", {{"alibi", "head"}}},
      {"bias", {{"bias", "tensor"}}},
      {"dropout", {{"dropout", "philox"}, {"mask", "causal"}}},
      {"e4m3", {{"dtype", "e4m3"}, {"mask", "causal"}}, "128"},
      {"apart",
       {},
       "128",
       "150",
       {{"q_row_stride", 3 * 128},
        {"q_head_stride", 128},
        {"k_head_stride", 200 * 128},
        {"k_row_stride", 128},
        {"k_batch_stride", 200 * 128},
        {"out_row_stride", 2 * 128 + 8},
        {"out_batch_stride", 150 * (2 * 128 + 8)}}},
  };
  for (const Small& each : kinds) SUBCASE(each.name) {
      check_small("attention_forward", each);
    }
}

TEST_CASE("attention, small: attention_decode is right") {
  const std::vector<Small> kinds = {
      {"contiguous", {}, "128", "1"},
      {"paged", {{"layout", "paged"}}, "128", "1", {{"page_size", 16}}},
      {"rows", {{"mask", "none"}, {"invariant", "yes"}}, "72", "3"},
      {"apart",
       {{"layout", "paged"}},
       "64",
       "2",
       {{"page_size", 32},
        {"k_row_stride", 72},
        {"k_outer_stride", 32 * 72},
        {"out_row_stride", 2 * 64 + 8},
        {"out_batch_stride", 2 * (2 * 64 + 8)}}},
  };
  for (const Small& each : kinds) SUBCASE(each.name) {
      check_small("attention_decode", each);
    }
}

TEST_CASE("attention, small: attention_backward is right") {
  const std::vector<Small> kinds = {
      {"plain", {{"mask", "causal"}}, "128"},
      {"odd", {{"mask", "causal"}}, "72"},
      {"deterministic", {{"mask", "causal"}, {"deterministic", "yes"}}},
      {"packed", {{"mask", "causal"}, {"layout", "packed"}}},
      {"alibi", {{"alibi", "head"}}},
      {"bias", {{"bias", "tensor"}}},
      {"dropout", {{"dropout", "philox"}, {"mask", "causal"}}},
  };
  for (const Small& each : kinds) SUBCASE(each.name) {
      check_small("attention_backward", each);
    }
}

}  // namespace kiln::gpu_tests

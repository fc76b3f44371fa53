// attention_paged against its reference: page sizes, masks, choices, lengths in each case.
#include <random>

#include "gpu/attention.hpp"

namespace kiln::gpu_tests {
TEST_CASE("attention_paged is right with each page size and case of lengths") {
  Fixture fixture;
  std::mt19937 generator(101);
  const manifest::Op& op = fixture.op("attention_paged");
  const AttentionSizes sizes = {"5", "700", "1500", "8", "2", "128", "128"};
  for (std::size_t each = 0; each < op.prepare.value().cases.size(); ++each)
    for (const std::int64_t page_size : {1, 16, 24, 32, 48, 64, 128, 256, 1024}) {
      tune::Placement placement = placed(op, {{"page_size", page_size}});
      placement.prepare_case = each;
      for (const char* cache : {"bf16", "e4m3"})
        check_all(fixture, op, attention(op, sizes, {{"cache_dtype", cache}}), placement, generator);
    }
}

TEST_CASE("attention_paged is right with each mask, head dimension, group and number of queries") {
  Fixture fixture;
  std::mt19937 generator(103);
  const manifest::Op& op = fixture.op("attention_paged");
  const std::vector<std::pair<AttentionSizes, const char*>> all = {
      {{"3", "40", "777", "4", "4", "64", "64"}, "bf16"},     {{"2", "900", "5000", "16", "2", "128", "128"}, "f16"},
      {{"1", "513", "9000", "8", "1", "96", "96"}, "bf16"},   {{"4", "333", "333", "8", "2", "192", "128"}, "f16"},
      {{"2", "300", "1025", "8", "1", "256", "256"}, "bf16"}, {{"70", "1300", "130", "6", "2", "72", "40"}, "bf16"},
      {{"9", "1", "600", "32", "2", "128", "128"}, "bf16"}};
  for (const char* mask : {"causal", "none", "window"})
    for (const std::size_t each : {std::size_t{0}, std::size_t{3}}) {  // equal, one_long
      tune::Placement placement = placed(op, {{"window_left", 100}});
      placement.prepare_case = each;
      for (const auto& [sizes, dtype] : all) {
        check_all(fixture, op, attention(op, sizes, {{"mask", mask}, {"dtype", dtype}}), placement, generator);
        if (each == 0) continue;
        check_all(fixture, op, attention(op, sizes, {{"mask", mask}, {"dtype", dtype}, {"cache_dtype", "e4m3"}}),
                  placement, generator);
      }
    }
}

TEST_CASE("attention_paged is right with a soft cap and sinks, without lse, and where heads lie apart") {
  Fixture fixture;
  std::mt19937 generator(107);
  const manifest::Op& op = fixture.op("attention_paged");
  for (const char* cache : {"bf16", "e4m3"}) {
    const Problem problem = attention(op, {"3", "500", "3000", "8", "2", "64", "64"},
                                      {{"soft_cap", "tanh"}, {"sinks", "head"}, {"cache_dtype", cache}});
    check_cases(fixture, op, problem, generator);
    // Heads outermost in a page, and rows with something behind them.
    check_all(fixture, op, problem,
              placed(op, {{"page_size", 64},
                          {"k_row_stride", 80},
                          {"k_head_stride", 64 * 80},
                          {"k_outer_stride", 2 * 64 * 80},
                          {"v_row_stride", 80},
                          {"v_head_stride", 64 * 80},
                          {"v_outer_stride", 2 * 64 * 80},
                          {"out_row_stride", 8 * 64 + 8},
                          {"lse_head_stride", 503},
                          {"lse_batch_stride", 8 * 503}}),
              generator);
  }
}

}  // namespace kiln::gpu_tests

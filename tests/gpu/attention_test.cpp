// attention_forward against its reference: head dimensions, masks, choices, strides, packed batches in each case.
#include <random>

#include "gpu/attention.hpp"

namespace kiln::gpu_tests {
TEST_CASE("attention_forward is right with each mask and head dimension, at ragged sizes") {
  Fixture fixture;
  std::mt19937 generator(61);
  const manifest::Op& op = fixture.op("attention_forward");
  const std::vector<std::pair<AttentionSizes, const char*>> all = {
      {{"2", "300", "445", "4", "2", "128", "128"}, "bf16"}, {{"1", "1", "1000", "2", "1", "64", "64"}, "f16"},
      {{"1", "515", "129", "3", "1", "96", "96"}, "bf16"},   {{"3", "67", "70", "4", "4", "192", "128"}, "f16"},
      {{"1", "200", "333", "2", "2", "256", "256"}, "bf16"}, {{"2", "33", "50", "2", "1", "72", "40"}, "f16"},
      {{"1", "150", "213", "4", "2", "80", "112"}, "bf16"},  {{"2", "97", "129", "2", "2", "224", "216"}, "bf16"}};
  for (const char* mask : {"none", "causal", "window"})
    for (const auto& [sizes, dtype] : all) {
      const Problem problem = attention(op, sizes, {{"mask", mask}, {"dtype", dtype}});
      check_all(fixture, op, problem, {}, generator);
      if (mask != std::string_view("none"))
        check_all(fixture, op, problem, placed(op, {{"from_end", 0}, {"window_left", 40}}), generator);
    }
}

TEST_CASE("attention_forward is right with a soft cap and sinks, without lse, and where heads lie apart") {
  Fixture fixture;
  std::mt19937 generator(67);
  const manifest::Op& op = fixture.op("attention_forward");
  const Problem problem = attention(op, {"2", "130", "190", "4", "2", "64", "64"},
                                    {{"mask", "causal"}, {"soft_cap", "tanh"}, {"sinks", "head"}});
  tune::Placement no_lse;
  no_lse.leave_optional_out = true;
  check_all(fixture, op, problem, no_lse, generator);
  const std::int64_t q_head = 130 * 64, k_head = 190 * 64;
  check_all(fixture, op, problem,
            placed(op, {{"q_row_stride", 64},
                        {"q_head_stride", q_head},
                        {"q_batch_stride", 4 * q_head},
                        {"k_row_stride", 64},
                        {"k_head_stride", k_head},
                        {"k_batch_stride", 2 * k_head},
                        {"out_row_stride", 4 * 64 + 8},
                        {"out_batch_stride", 130 * (4 * 64 + 8)},
                        {"lse_head_stride", 137},
                        {"lse_batch_stride", 4 * 137}}),
            generator);
}

TEST_CASE("attention_forward is right with ALiBi's slopes, dense from either diagonal and packed") {
  Fixture fixture;
  std::mt19937 generator(97);
  const manifest::Op& op = fixture.op("attention_forward");
  const AttentionSizes sizes = {"2", "300", "445", "4", "2", "128", "128"};
  check_all(fixture, op, attention(op, sizes, {{"alibi", "head"}}), {}, generator);
  check_all(fixture, op, attention(op, sizes, {{"alibi", "head"}, {"mask", "causal"}, {"soft_cap", "tanh"}}),
            placed(op, {{"from_end", 0}}), generator);
  check_all(fixture, op,
            attention(op, {"7", "1301", "1445", "4", "2", "64", "64"},
                      {{"alibi", "head"}, {"mask", "window"}, {"layout", "packed"}}),
            {}, generator);
}

TEST_CASE("attention_forward is right with a bias a head, of the batch or of all, at odd lengths") {
  Fixture fixture;
  std::mt19937 generator(103);
  const manifest::Op& op = fixture.op("attention_forward");
  const AttentionSizes sizes = {"2", "300", "445", "4", "2", "128", "128"};
  check_all(fixture, op, attention(op, sizes, {{"bias", "tensor"}}), {}, generator);
  check_all(fixture, op, attention(op, sizes, {{"bias", "tensor"}, {"mask", "causal"}, {"soft_cap", "tanh"}}),
            placed(op, {{"bias_batch_stride", 0}, {"bias_head_stride", 300 * 450}, {"bias_row_stride", 450}}),
            generator);
  check_all(fixture, op,
            attention(op, {"2", "67", "70", "3", "1", "256", "256"},
                      {{"bias", "tensor"}, {"alibi", "head"}, {"dtype", "f16"}}),
            placed(op, {{"bias_head_stride", 0}, {"bias_batch_stride", 67 * 70}}), generator);
}

TEST_CASE("attention_forward drops the weights that its reference drops, dense, packed and beside a bias") {
  Fixture fixture;
  std::mt19937 generator(109);
  const manifest::Op& op = fixture.op("attention_forward");
  check_all(fixture, op,
            attention(op, {"2", "300", "445", "4", "2", "128", "128"}, {{"dropout", "philox"}, {"sinks", "head"}}), {},
            generator);
  check_all(fixture, op,
            attention(op, {"7", "1301", "1445", "4", "2", "64", "64"},
                      {{"dropout", "philox"}, {"mask", "causal"}, {"soft_cap", "tanh"}, {"layout", "packed"}}),
            {}, generator);
  check_all(fixture, op,
            attention(op, {"2", "67", "70", "3", "1", "256", "256"},
                      {{"dropout", "philox"}, {"bias", "tensor"}, {"dtype", "f16"}}),
            {}, generator);
}

TEST_CASE("attention_forward is right with packed batches in each case of their lengths") {
  Fixture fixture;
  std::mt19937 generator(71);
  const manifest::Op& op = fixture.op("attention_forward");
  for (std::size_t each = 0; each < op.prepare.value().cases.size(); ++each)
    for (const char* mask : {"none", "causal", "window"})
      for (const AttentionSizes& sizes : {AttentionSizes{"7", "1301", "1445", "4", "2", "128", "128"},
                                          AttentionSizes{"40", "333", "700", "2", "1", "64", "64"}}) {
        tune::Placement placement;
        placement.prepare_case = each;
        check_all(fixture, op, attention(op, sizes, {{"mask", mask}, {"layout", "packed"}}), placement, generator);
      }
}

TEST_CASE("attention_forward in e4m3 is right with each mask and head dimension, at ragged sizes, into bf16 and f16") {
  Fixture fixture;
  std::mt19937 generator(73);
  const manifest::Op& op = fixture.op("attention_forward");
  const std::vector<std::pair<AttentionSizes, const char*>> all = {
      {{"2", "300", "445", "4", "2", "128", "128"}, "bf16"}, {{"1", "1", "1000", "2", "1", "64", "64"}, "f16"},
      {{"1", "515", "129", "3", "1", "96", "96"}, "bf16"},   {{"3", "67", "70", "4", "4", "192", "128"}, "f16"},
      {{"1", "200", "333", "2", "2", "256", "256"}, "bf16"}, {{"2", "33", "50", "2", "1", "72", "40"}, "bf16"},
      {{"1", "700", "4099", "2", "2", "128", "128"}, "bf16"}};
  for (const char* mask : {"none", "causal", "window"})
    for (const auto& [sizes, out] : all)
      check_all(fixture, op, attention(op, sizes, {{"mask", mask}, {"dtype", "e4m3"}, {"out_dtype", out}}), {},
                generator);
}

TEST_CASE(
    "attention_forward in e4m3 is right with a soft cap and sinks, without lse, and with packed batches in each case of their lengths") {
  Fixture fixture;
  std::mt19937 generator(79);
  const manifest::Op& op = fixture.op("attention_forward");
  tune::Placement no_lse;
  no_lse.leave_optional_out = true;
  check_all(fixture, op,
            attention(op, {"2", "130", "190", "4", "2", "64", "64"},
                      {{"mask", "causal"}, {"soft_cap", "tanh"}, {"sinks", "head"}, {"dtype", "e4m3"}}),
            no_lse, generator);
  for (std::size_t each = 0; each < op.prepare.value().cases.size(); ++each)
    for (const char* mask : {"none", "causal", "window"}) {
      tune::Placement placement;
      placement.prepare_case = each;
      check_all(fixture, op,
                attention(op, {"7", "1301", "1445", "4", "2", "128", "128"},
                          {{"mask", mask}, {"layout", "packed"}, {"dtype", "e4m3"}}),
                placement, generator);
    }
}

}  // namespace kiln::gpu_tests

// attention_backward against its reference: head dimensions, masks, choices, strides, packed batches in each case, equal bits.
#include <random>

#include "gpu/attention.hpp"
#include "gpu/products.hpp"
#include "tune/tensor_extent.hpp"

namespace kiln::gpu_tests {
namespace {

/// Of each gradient, after one launch.
std::vector<Bits> gradients(Fixture& fixture, const manifest::Op& op, const tune::VerificationCase& of) {
  std::vector<Bits> all;
  for (const char* name : {"dq", "dk", "dv", "dsink"}) {
    const TensorId id = tensor_named(op, name);
    const manifest::Tensor& tensor = op.tensors[id.index];
    const auto frame = manifest::frame_of({op, fixture.facts()}, of.problem());
    const tune::TensorExtent extent = tune::extent_of(op, tensor, frame);
    all.push_back(
        read_bits(fixture, of.arguments().tensors[id.index], extent.elements * manifest::size_of(extent.type)));
  }
  return all;
}

}  // namespace

TEST_CASE("attention_backward is right with each mask and head dimension, at ragged sizes, in order and not") {
  Fixture fixture;
  std::mt19937 generator(73);
  const manifest::Op& op = fixture.op("attention_backward");
  const std::vector<std::pair<AttentionSizes, const char*>> all = {
      {{"2", "300", "445", "4", "2", "128", "128"}, "bf16"}, {{"1", "1", "1000", "2", "1", "64", "64"}, "f16"},
      {{"1", "1000", "1", "2", "1", "64", "64"}, "bf16"},    {{"1", "515", "129", "3", "1", "96", "96"}, "bf16"},
      {{"3", "67", "70", "4", "4", "192", "128"}, "f16"},    {{"1", "200", "333", "2", "2", "256", "256"}, "bf16"},
      {{"2", "33", "50", "2", "1", "72", "40"}, "f16"},      {{"1", "150", "213", "4", "2", "80", "112"}, "bf16"},
      {{"2", "97", "129", "2", "2", "224", "216"}, "bf16"}};
  for (const char* deterministic : {"no", "yes"})
    for (const char* mask : {"none", "causal", "window"})
      SUBCASE(fmt::format("mask={} deterministic={}", mask, deterministic).c_str()) {
        for (const auto& [sizes, dtype] : all) {
          const Problem problem =
              attention(op, sizes, {{"mask", mask}, {"dtype", dtype}, {"deterministic", deterministic}});
          check_all(fixture, op, problem, {}, generator);
          if (mask != std::string_view("none"))
            check_all(fixture, op, problem, placed(op, {{"from_end", 0}, {"window_left", 40}}), generator);
        }
      }
}

TEST_CASE(
    "attention_backward is right with a soft cap and sinks, with and without their gradient, and with heads that lie apart") {
  Fixture fixture;
  std::mt19937 generator(79);
  const manifest::Op& op = fixture.op("attention_backward");
  for (const char* deterministic : {"no", "yes"}) {
    const Problem problem =
        attention(op, {"2", "130", "190", "4", "2", "64", "64"},
                  {{"mask", "causal"}, {"soft_cap", "tanh"}, {"sinks", "head"}, {"deterministic", deterministic}});
    check_all(fixture, op, problem, {}, generator);
    tune::Placement no_sinks;
    no_sinks.leave_optional_out = true;
    check_all(fixture, op, problem, no_sinks, generator);
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
}

TEST_CASE("attention_backward is right with ALiBi's slopes, dense from either diagonal and packed") {
  Fixture fixture;
  std::mt19937 generator(101);
  const manifest::Op& op = fixture.op("attention_backward");
  const AttentionSizes sizes = {"2", "300", "445", "4", "2", "128", "128"};
  check_all(fixture, op, attention(op, sizes, {{"alibi", "head"}}), {}, generator);
  check_all(fixture, op,
            attention(op, {"1", "1025", "2048", "4", "4", "128", "128"}, {{"alibi", "head"}, {"mask", "causal"}}), {},
            generator);
  check_all(
      fixture, op,
      attention(op, sizes, {{"alibi", "head"}, {"mask", "causal"}, {"soft_cap", "tanh"}, {"deterministic", "yes"}}),
      placed(op, {{"from_end", 0}}), generator);
  check_all(fixture, op,
            attention(op, {"7", "1301", "1445", "4", "2", "64", "64"},
                      {{"alibi", "head"}, {"mask", "window"}, {"layout", "packed"}}),
            {}, generator);
}

TEST_CASE("attention_backward is right with a bias a head, of the batch or of all, at odd lengths") {
  Fixture fixture;
  std::mt19937 generator(107);
  const manifest::Op& op = fixture.op("attention_backward");
  const AttentionSizes sizes = {"2", "300", "445", "4", "2", "128", "128"};
  check_all(fixture, op, attention(op, sizes, {{"bias", "tensor"}}), {}, generator);
  check_all(
      fixture, op,
      attention(op, sizes, {{"bias", "tensor"}, {"mask", "causal"}, {"soft_cap", "tanh"}, {"deterministic", "yes"}}),
      placed(op, {{"bias_batch_stride", 0}, {"bias_head_stride", 300 * 450}, {"bias_row_stride", 450}}), generator);
  check_all(fixture, op,
            attention(op, {"2", "67", "70", "3", "1", "256", "256"},
                      {{"bias", "tensor"}, {"alibi", "head"}, {"dtype", "f16"}}),
            placed(op, {{"bias_head_stride", 0}, {"bias_batch_stride", 67 * 70}}), generator);
}

TEST_CASE("attention_backward drops the weights that its reference drops, dense, packed and beside a bias") {
  Fixture fixture;
  std::mt19937 generator(113);
  const manifest::Op& op = fixture.op("attention_backward");
  check_all(fixture, op,
            attention(op, {"2", "300", "445", "4", "2", "128", "128"},
                      {{"dropout", "philox"}, {"sinks", "head"}, {"deterministic", "yes"}}),
            {}, generator);
  check_all(fixture, op,
            attention(op, {"7", "1301", "1445", "4", "2", "64", "64"},
                      {{"dropout", "philox"}, {"mask", "causal"}, {"soft_cap", "tanh"}, {"layout", "packed"}}),
            {}, generator);
  check_all(fixture, op,
            attention(op, {"2", "67", "70", "3", "1", "256", "256"},
                      {{"dropout", "philox"}, {"bias", "tensor"}, {"dtype", "f16"}}),
            {}, generator);
}

TEST_CASE("attention_backward is right with packed batches in each case of their lengths") {
  Fixture fixture;
  std::mt19937 generator(83);
  const manifest::Op& op = fixture.op("attention_backward");
  for (std::size_t each = 0; each < op.prepare.value().cases.size(); ++each)
    for (const char* mask : {"none", "causal", "window"})
      for (const AttentionSizes& sizes : {AttentionSizes{"7", "1301", "1445", "4", "2", "128", "128"},
                                          AttentionSizes{"40", "333", "700", "2", "1", "64", "64"}}) {
        tune::Placement placement;
        placement.prepare_case = each;
        check_all(fixture, op, attention(op, sizes, {{"mask", mask}, {"layout", "packed"}}), placement, generator);
        check_all(
            fixture, op,
            attention(op, sizes, {{"mask", mask}, {"layout", "packed"}, {"sinks", "head"}, {"deterministic", "yes"}}),
            placement, generator);
      }
}

TEST_CASE("attention_backward's gradients have equal bits in 1,000 runs where they are deterministic") {
  Fixture fixture;
  std::mt19937 generator(89);
  const manifest::Op& op = fixture.op("attention_backward");
  const Problem problem = attention(op, {"2", "777", "1023", "4", "2", "128", "128"},
                                    {{"mask", "causal"}, {"sinks", "head"}, {"deterministic", "yes"}});
  const Problem bucket = manifest::bucket_of(op, problem);
  tune::VerificationCase verified({op, fixture.facts()}, problem, fixture.arch(), fixture.cubins, 5,
                                  fixture.stream.handle());
  for (const Candidate& candidate : candidates(fixture, op, bucket, generator)) {
    const jit::Executable executable = fixture.load(op, *candidate.implementation, bucket, candidate.config);
    if (!verified.admits(executable)) continue;
    tune::TrialWorkspace workspace(executable);
    workspace.renew(fixture.stream.handle());
    std::vector<Bits> first;
    int unlike = 0;
    for (int run = 0; run < 1000; ++run) {
      verified.launch(executable, workspace, fixture.stream.handle());
      std::vector<Bits> now = gradients(fixture, op, verified);
      if (run == 0)
        first = std::move(now);
      else if (now != first)
        ++unlike;
    }
    CHECK_MESSAGE(unlike == 0,
                  fmt::format("{} of 1000 runs of {} {} gave other bits", unlike, candidate.implementation->name,
                              manifest::to_string(*candidate.implementation, candidate.config)));
  }
}

}  // namespace kiln::gpu_tests

// What stands between a transformer's products, against the references: masks, scales, halves of buffers, positions, scales of e4m3.
#include <random>

#include "gpu/check_implementations.hpp"

namespace kiln::gpu_tests {
namespace {

tune::Placement scaled(const manifest::Op& op, tune::Placement placement, double scale) {
  for (std::size_t i = 0; i < op.runtime.size(); ++i)
    if (op.runtime[i].name == "scale")
      placement.reals.push_back({{static_cast<std::uint8_t>(i), RuntimeId::Kind::real32}, scale});
  REQUIRE(!placement.reals.empty());
  return placement;
}

/// One, odd, one past a tile, and more than a block holds.
constexpr std::array<std::array<const char*, 2>, 7> ragged = {
    {{"1", "1"}, {"5", "7"}, {"67", "129"}, {"3", "1000"}, {"33", "4097"}, {"2", "20000"}, {"257", "128"}}};

}  // namespace

TEST_CASE("softmax is right under every mask and a scale, at ragged sizes in every type") {
  Fixture fixture;
  std::mt19937 generator(31);
  const manifest::Op& op = fixture.op("softmax");
  for (const char* mask : {"none", "causal", "additive", "boolean"})
    for (const char* dtype : {"bf16", "f16", "f32"})
      for (const auto& [rows, cols] : ragged) {
        const Problem problem = fixture.problem(op, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}, {"mask", mask}});
        check_all(fixture, op, problem, scaled(op, placed(op, {{"queries", 5}, {"mask_rows", 3}}), 0.125), generator);
        check_all(fixture, op, problem, {}, generator);  // more queries than keys: rows that see nothing
      }
}

TEST_CASE("softmax and its backward pass are right at long rows, more than there are multiprocessors, aligned or not") {
  Fixture fixture;
  std::mt19937 generator(33);
  const manifest::Op& op = fixture.op("softmax");
  for (const char* mask : {"none", "causal"})
    for (const char* dtype : {"bf16", "f32"})
      for (const char* cols : {"9001", "20000", "65535", "128256", "202048", "262208"})
        check_all(fixture, op, fixture.problem(op, {{"rows", "300"}, {"cols", cols}, {"dtype", dtype}, {"mask", mask}}),
                  {}, generator);
  // The longest row: in f16 its elements are subnormal.
  check_all(fixture, op, fixture.problem(op, {{"rows", "5"}, {"cols", "327680"}, {"dtype", "f16"}}), {}, generator);
  const manifest::Op& backward = fixture.op("softmax_backward");
  for (const char* dtype : {"bf16", "f16", "f32"})
    check_all(fixture, backward, fixture.problem(backward, {{"rows", "300"}, {"cols", "262208"}, {"dtype", dtype}}), {},
              generator);
}

TEST_CASE("softmax and its backward pass are right with strides and unaligned addresses under every mask") {
  Fixture fixture;
  std::mt19937 generator(37);
  const manifest::Op& op = fixture.op("softmax");
  const manifest::Op& backward = fixture.op("softmax_backward");
  for (const char* dtype : {"bf16", "f32"})
    for (const std::int64_t offset : {0, 1, 4}) {
      for (const char* mask : {"causal", "additive", "boolean"})
        check_all(
            fixture, op, fixture.problem(op, {{"rows", "13"}, {"cols", "1024"}, {"dtype", dtype}, {"mask", mask}}),
            placed(op, {{"x_row_stride", 1037}, {"y_row_stride", 1029}, {"mask_row_stride", 1031}, {"mask_rows", 4}},
                   offset),
            generator);
      check_all(fixture, backward, fixture.problem(backward, {{"rows", "13"}, {"cols", "1024"}, {"dtype", dtype}}),
                placed(backward, {{"y_row_stride", 1037}, {"dy_row_stride", 1029}, {"dx_row_stride", 1031}}, offset),
                generator);
    }
}

TEST_CASE("the backward passes of softmax and swiglu are right at ragged sizes in every type") {
  Fixture fixture;
  std::mt19937 generator(41);
  for (const char* name : {"softmax_backward", "swiglu_backward"}) {
    const manifest::Op& op = fixture.op(name);
    for (const char* dtype : {"bf16", "f16", "f32"})
      for (const auto& [rows, cols] : ragged)
        check_all(fixture, op, fixture.problem(op, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}}), {}, generator);
  }
}

TEST_CASE("swiglu and quantise are right at ragged sizes in every type and way of scaling") {
  Fixture fixture;
  std::mt19937 generator(43);
  const manifest::Op& swiglu = fixture.op("swiglu");
  const manifest::Op& quantise = fixture.op("quantise");
  for (const char* dtype : {"bf16", "f16", "f32"})
    for (const auto& [rows, cols] : ragged) {
      for (const char* word : {"none", "tensor", "block"})
        check_all(fixture, swiglu,
                  fixture.problem(swiglu, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}, {"quantise", word}}), {},
                  generator);
      for (const char* word : {"tensor", "block", "dynamic"})
        check_all(fixture, quantise,
                  fixture.problem(quantise, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}, {"scaling", word}}), {},
                  generator);
    }
}

TEST_CASE("swiglu, its backward pass and quantise are right with strides and unaligned addresses") {
  Fixture fixture;
  std::mt19937 generator(47);
  const manifest::Op& swiglu = fixture.op("swiglu");
  const manifest::Op& backward = fixture.op("swiglu_backward");
  const manifest::Op& quantise = fixture.op("quantise");
  for (const char* dtype : {"bf16", "f32"})
    for (const std::int64_t offset : {0, 1, 4, 16}) {
      for (const std::int64_t stride : {1037, 2048}) {
        for (const char* word : {"none", "tensor", "block"})
          check_all(
              fixture, swiglu,
              fixture.problem(swiglu, {{"rows", "13"}, {"cols", "1000"}, {"dtype", dtype}, {"quantise", word}}),
              placed(swiglu, {{"gate_row_stride", stride}, {"up_row_stride", stride + 1}, {"y_row_stride", stride + 3}},
                     offset),
              generator);
        for (const char* word : {"tensor", "block", "dynamic"})
          check_all(fixture, quantise,
                    fixture.problem(quantise, {{"rows", "13"}, {"cols", "1000"}, {"dtype", dtype}, {"scaling", word}}),
                    placed(quantise, {{"x_row_stride", stride}, {"y_row_stride", stride + 3}}, offset), generator);
        check_all(fixture, backward, fixture.problem(backward, {{"rows", "13"}, {"cols", "1000"}, {"dtype", dtype}}),
                  placed(backward,
                         {{"gate_row_stride", stride}, {"dy_row_stride", stride + 1}, {"dup_row_stride", stride + 2}},
                         offset),
                  generator);
      }
    }
}

TEST_CASE("the scales of blocks may lie with rows as neighbours") {
  Fixture fixture;
  std::mt19937 generator(53);
  const manifest::Op& op = fixture.op("quantise");
  check_all(fixture, op,
            fixture.problem(op, {{"rows", "37"}, {"cols", "1000"}, {"dtype", "bf16"}, {"scaling", "block"}}),
            placed(op, {{"block_scale_row_stride", 1}, {"block_scale_stride", 40}}), generator);
}

TEST_CASE("rotary is right in every type, layout and direction, whole and partial, at ragged sizes") {
  Fixture fixture;
  std::mt19937 generator(59);
  const manifest::Op& op = fixture.op("rotary");
  for (const char* dtype : {"bf16", "f16", "f32"})
    for (const char* layout : {"half", "interleaved"})
      for (const char* direction : {"forward", "backward"})
        for (const auto& [tokens, heads, dim, rotary_dim] :
             {std::array{"1", "1", "2", "2"}, std::array{"17", "5", "64", "64"}, std::array{"130", "8", "128", "96"},
              std::array{"3", "33", "80", "20"}, std::array{"9", "2", "37", "6"}}) {
          const Problem problem = fixture.problem(op, {{"tokens", tokens},
                                                       {"heads", heads},
                                                       {"dim", dim},
                                                       {"rotary_dim", rotary_dim},
                                                       {"dtype", dtype},
                                                       {"index", heads[0] == '8' ? "i64" : "i32"},
                                                       {"layout", layout},
                                                       {"direction", direction}});
          check_all(fixture, op, problem, {}, generator);
          check_all(
              fixture, op, problem,
              placed(
                  op,
                  {{"x_head_stride", 131}, {"x_token_stride", 5003}, {"y_head_stride", 136}, {"y_token_stride", 5008}},
                  1),
              generator);
        }
}

}  // namespace kiln::gpu_tests

// Outputs that may take an input's place, as the manifests say: every implementation, with one buffer for both.
#include <random>

#include "gpu/check_implementations.hpp"

namespace kiln::gpu_tests {
namespace {

TensorId tensor(const manifest::Op& op, std::string_view name) {
  for (std::size_t i = 0; i < op.tensors.size(); ++i)
    if (op.tensors[i].name == name) return TensorId{static_cast<std::uint8_t>(i)};
  FAIL(op.name, " has no tensor ", std::string(name));
  return {};
}

tune::Placement in_place(const manifest::Op& op, std::string_view output, std::string_view input) {
  tune::Placement placement;
  placement.in_place = {tensor(op, output), tensor(op, input)};
  return placement;
}

/// One, odd, past a tile, with whole vectors and without, and more than a block holds.
constexpr std::array<std::array<const char*, 2>, 6> ragged_in_place = {
    {{"1", "3"}, {"5", "7"}, {"67", "129"}, {"33", "1024"}, {"3", "4097"}, {"2", "20000"}}};

}  // namespace

TEST_CASE("rotary turns x in its place, in every type, layout and direction, whole and partial") {
  Fixture fixture;
  std::mt19937 generator(61);
  const manifest::Op& op = fixture.op("rotary");
  for (const char* dtype : {"bf16", "f16", "f32"})
    for (const char* layout : {"half", "interleaved"})
      for (const char* direction : {"forward", "backward"})
        for (const auto& [tokens, heads, dim, rotary_dim] :
             {std::array{"1", "1", "2", "2"}, std::array{"17", "5", "64", "64"}, std::array{"130", "8", "128", "96"},
              std::array{"9", "2", "37", "6"}})
          check_all(fixture, op,
                    fixture.problem(op, {{"tokens", tokens},
                                         {"heads", heads},
                                         {"dim", dim},
                                         {"rotary_dim", rotary_dim},
                                         {"dtype", dtype},
                                         {"index", "i32"},
                                         {"layout", layout},
                                         {"direction", direction}}),
                    in_place(op, "y", "x"), generator);
}

TEST_CASE("softmax's backward pass writes dx in dy's place") {
  Fixture fixture;
  std::mt19937 generator(67);
  const manifest::Op& op = fixture.op("softmax_backward");
  for (const char* dtype : {"bf16", "f16", "f32"})
    for (const auto& [rows, cols] : ragged_in_place)
      check_all(fixture, op, fixture.problem(op, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}}),
                in_place(op, "dx", "dy"), generator);
}

TEST_CASE("the norms write their sum in the place of the residual or of x, and their gradients in that of the sum's") {
  Fixture fixture;
  std::mt19937 generator(71);
  for (const char* dtype : {"bf16", "f32"})
    for (const auto& [rows, cols] : ragged_in_place)
      for (const char* norm : {"rms_norm", "layer_norm"}) {
        const manifest::Op& op = fixture.op(norm);
        const manifest::Op& backward = fixture.op(std::string(norm) + "_backward");
        for (const char* input : {"residual_in", "x"})
          check_all(fixture, op,
                    fixture.problem(op, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}, {"residual", "add"}}),
                    in_place(op, "sum", input), generator);
        check_all(fixture, backward,
                  fixture.problem(backward, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}, {"residual", "add"}}),
                  in_place(backward, "dx", "d_sum"), generator);
      }
}

}  // namespace kiln::gpu_tests

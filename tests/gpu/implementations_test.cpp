// Every implementation against its op's reference: edge sizes, every type and choice, strides, offsets.
#include <random>

#include "gpu/check_implementations.hpp"

namespace kiln::gpu_tests {

TEST_CASE("rms_norm and softmax are right at edge sizes in every type") {
  Fixture fixture;
  std::mt19937 generator(20261121);
  for (const char* name : {"rms_norm", "softmax"}) {
    const manifest::Op& op = fixture.op(name);
    for (const char* dtype : {"bf16", "f16", "f32"})
      for (const char* cols : {"1", "7", "33", "257", "1000", "4096", "4097", "8192", "20000", "131072"})
        for (const char* rows : {"1", "5", "67"})
          check_all(fixture, op, fixture.problem(op, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}}), {},
                    generator);
  }
}

TEST_CASE("rms_norm and softmax are right with strides and unaligned addresses") {
  Fixture fixture;
  std::mt19937 generator(7);
  for (const char* name : {"rms_norm", "softmax"}) {
    const manifest::Op& op = fixture.op(name);
    std::vector<std::pair<RuntimeId, std::int64_t>> strides;
    for (std::size_t i = 0; i < op.runtime.size(); ++i)
      if (op.runtime[i].is_integer())
        strides.push_back({{static_cast<std::uint8_t>(i), RuntimeId::Kind::integer}, 1037});
    REQUIRE_FALSE(strides.empty());
    for (const char* dtype : {"bf16", "f32"})
      for (const std::int64_t offset : {0, 1, 4}) {
        tune::Placement placement;
        placement.runtime = strides;
        placement.offset_elements = offset;
        check_all(fixture, op, fixture.problem(op, {{"rows", "13"}, {"cols", "1024"}, {"dtype", dtype}}), placement,
                  generator);
      }
  }
}

TEST_CASE("gemm is right in every type, layout and activation, at ragged sizes") {
  Fixture fixture;
  std::mt19937 generator(11);
  const manifest::Op& op = fixture.op("gemm");
  for (const char* dtype : {"bf16", "f16", "f32"})
    for (const char* layout : {"nt", "nn", "tn", "tt"})
      for (const char* activation : {"none", "gelu"})
        for (const auto& [m, n, k] : {std::array{"1", "8", "8"}, std::array{"129", "264", "520"},
                                      std::array{"65", "72", "40"}, std::array{"33", "31", "17"}})
          check_all(
              fixture, op,
              fixture.problem(
                  op, {{"m", m}, {"n", n}, {"k", k}, {"dtype", dtype}, {"layout", layout}, {"activation", activation}}),
              {}, generator);
}

TEST_CASE("products of few rows are right in every number of them, one by one and in groups") {
  Fixture fixture;
  std::mt19937 generator(12);
  const manifest::Op &one = fixture.op("gemm"), &grouped = fixture.op("gemm_grouped");
  for (const char* m : {"1", "3", "8", "13", "32", "64"})
    for (const auto& [dtype, scaling] : {std::array{"bf16", "none"}, std::array{"f16", "none"},
                                         std::array{"e4m3", "row"}, std::array{"e5m2", "block"}})
      for (const auto& [n, k] : {std::array{"45", "272"}, std::array{"520", "4096"}}) {
        check_all(fixture, one,
                  fixture.problem(one, {{"m", m}, {"n", n}, {"k", k}, {"dtype", dtype}, {"scaling", scaling}}), {},
                  generator);
        check_all(fixture, grouped,
                  fixture.problem(
                      grouped, {{"m", m}, {"n", n}, {"k", k}, {"groups", "5"}, {"dtype", dtype}, {"scaling", scaling}}),
                  {}, generator);
      }
}

TEST_CASE("gemm is right without its bias and at addresses that no vector load can take") {
  Fixture fixture;
  std::mt19937 generator(13);
  const manifest::Op& op = fixture.op("gemm");
  tune::Placement no_bias;
  no_bias.leave_optional_out = true;
  tune::Placement unaligned;
  unaligned.offset_elements = 1;
  const Problem problem = fixture.problem(op, {{"m", "100"}, {"n", "96"}, {"k", "128"}, {"dtype", "bf16"}});
  check_all(fixture, op, problem, no_bias, generator);
  check_all(fixture, op, problem, unaligned, generator);
}

TEST_CASE("gemm is right with all that may follow a product, in the types that it may be of") {
  Fixture fixture;
  std::mt19937 generator(41);
  const manifest::Op& op = fixture.op("gemm");
  for (const auto& [dtype, w_dtype, out] :
       {std::array{"bf16", "bf16", "f32"}, std::array{"f16", "f16", "e4m3"}, std::array{"e4m3", "e5m2", "bf16"},
        std::array{"e4m3", "e4m3", "e4m3"}, std::array{"e5m2", "f32", "f16"}})
    for (const char* scaling : {"none", "tensor", "row", "block"})
      for (const auto& [activation, residual, accumulate] :
           {std::array{"swiglu", "none", "no"}, std::array{"gelu", "add", "no"}, std::array{"none", "add", "yes"}})
        for (const auto& [m, n, k] : {std::array{"129", "264", "528"}, std::array{"33", "31", "17"}})
          check_all(fixture, op,
                    fixture.problem(op, {{"m", m},
                                         {"n", n},
                                         {"k", k},
                                         {"dtype", dtype},
                                         {"w_dtype", w_dtype},
                                         {"out", out},
                                         {"scaling", scaling},
                                         {"activation", activation},
                                         {"residual", residual},
                                         {"accumulate", accumulate}}),
                    {}, generator);
}

TEST_CASE("scales of blocks that lie column by column are the same scales") {
  Fixture fixture;
  std::mt19937 generator(43);
  const manifest::Op& op = fixture.op("gemm");
  tune::Placement placement;
  for (std::size_t i = 0; i < op.runtime.size(); ++i) {
    const RuntimeId id{static_cast<std::uint8_t>(i), RuntimeId::Kind::integer};
    if (op.runtime[i].name == "x_scale_stride") placement.runtime.emplace_back(id, 1);
    if (op.runtime[i].name == "x_scale_k_stride") placement.runtime.emplace_back(id, 96);
  }
  check_all(fixture, op,
            fixture.problem(op, {{"m", "77"}, {"n", "264"}, {"k", "528"}, {"dtype", "e4m3"}, {"scaling", "block"}}),
            placement, generator);
}

TEST_CASE("batches and groups of products are right in every layout, at ragged sizes") {
  Fixture fixture;
  std::mt19937 generator(47);
  const manifest::Op& batched = fixture.op("gemm_batched");
  const manifest::Op& grouped = fixture.op("gemm_grouped");
  for (const auto& [dtype, scaling] : {std::array{"bf16", "none"}, std::array{"bf16", "row"},
                                       std::array{"f32", "tensor"}, std::array{"e4m3", "block"}})
    for (const char* activation : {"none", "swiglu"})
      for (const auto& [m, n, k] : {std::array{"136", "264", "520"}, std::array{"33", "31", "17"}}) {
        std::vector<manifest::Setting> settings = {
            {"m", m}, {"n", n}, {"k", k}, {"dtype", dtype}, {"scaling", scaling}, {"activation", activation}};
        const auto with = [&](std::initializer_list<manifest::Setting> more) {
          std::vector<manifest::Setting> all = settings;
          all.insert(all.end(), more);
          return all;
        };
        for (const char* layout : {"nt", "nn", "tn", "tt"})
          check_all(fixture, batched, manifest::make_problem(batched, with({{"batch", "5"}, {"layout", layout}})), {},
                    generator);
        for (const char* layout : {"nt", "nn"})
          for (const char* groups : {"1", "6", "200"})
            check_all(fixture, grouped, manifest::make_problem(grouped, with({{"groups", groups}, {"layout", layout}})),
                      {}, generator);
      }
}

TEST_CASE("an op from a folder with tensor maps is right, and its plain form serves where they cannot") {
  Fixture fixture;
  std::mt19937 generator(17);
  const manifest::Op& op = fixture.op("tile_scale");
  for (const char* dtype : {"bf16", "f32"})
    for (const char* rows : {"1", "9", "1000"})
      for (const char* cols : {"8", "72", "4096"})
        check_all(fixture, op, fixture.problem(op, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}}), {}, generator);
}

TEST_CASE("the example op is right at lengths around its vector") {
  Fixture fixture;
  std::mt19937 generator(19);
  const manifest::Op& op = fixture.op("squared_relu");
  for (const char* count : {"1", "7", "8", "9", "1000", "1048577"})
    check_all(fixture, op, fixture.problem(op, {{"count", count}, {"dtype", "f16"}}), {}, generator);
}

TEST_CASE("the fused norms are right with residuals and quantised outputs, at edge sizes in every type") {
  Fixture fixture;
  std::mt19937 generator(23);
  for (const char* name : {"rms_norm", "layer_norm"}) {
    const manifest::Op& op = fixture.op(name);
    for (const char* residual : {"none", "add"})
      for (const char* quantise : {"none", "tensor", "block"})
        for (const char* dtype : {"bf16", "f16", "f32"})
          for (const auto& [rows, cols] :
               {std::array{"5", "1"}, std::array{"67", "33"}, std::array{"3", "129"}, std::array{"67", "256"},
                std::array{"1", "1000"}, std::array{"9", "1024"}, std::array{"67", "4096"}, std::array{"5", "4099"},
                std::array{"2", "20000"}, std::array{"1", "65536"}})
            check_all(
                fixture, op,
                fixture.problem(
                    op,
                    {{"rows", rows}, {"cols", cols}, {"dtype", dtype}, {"residual", residual}, {"quantise", quantise}}),
                {}, generator);
  }
}

TEST_CASE("the norms' backward passes are right at edge sizes in every type") {
  Fixture fixture;
  std::mt19937 generator(29);
  for (const char* name : {"rms_norm_backward", "layer_norm_backward"}) {
    const manifest::Op& op = fixture.op(name);
    for (const char* residual : {"none", "add"})
      for (const char* dtype : {"bf16", "f16", "f32"})
        for (const auto& [rows, cols] :
             {std::array{"5", "3"}, std::array{"67", "33"}, std::array{"1", "1000"}, std::array{"1037", "1024"},
              std::array{"2000", "4096"}, std::array{"300", "4104"}, std::array{"5", "4099"}, std::array{"70", "16384"},
              std::array{"9", "32768"}, std::array{"2", "131072"}})
          check_all(fixture, op,
                    fixture.problem(op, {{"rows", rows}, {"cols", cols}, {"dtype", dtype}, {"residual", residual}}), {},
                    generator);
  }
}

TEST_CASE("the fused norms and their backward passes are right with strides and unaligned addresses") {
  Fixture fixture;
  std::mt19937 generator(31);
  for (const char* name : {"rms_norm", "layer_norm", "rms_norm_backward", "layer_norm_backward"}) {
    const manifest::Op& op = fixture.op(name);
    for (const std::int64_t stride : {1037, 1048}) {
      tune::Placement placement;
      for (std::size_t i = 0; i < op.runtime.size(); ++i)
        if (op.runtime[i].is_integer() && !op.runtime[i].name.starts_with("block_scale"))
          placement.runtime.push_back({{static_cast<std::uint8_t>(i), RuntimeId::Kind::integer}, stride});
      for (const char* dtype : {"bf16", "f32"})
        for (const std::int64_t offset : {0, 1, 4, 8}) {
          placement.offset_elements = offset;
          std::vector<manifest::Setting> settings = {
              {"rows", "13"}, {"cols", "1000"}, {"dtype", dtype}, {"residual", "add"}};
          const bool forward = !std::string_view(name).ends_with("_backward");
          if (forward) settings.push_back({"quantise", offset == 1 ? "tensor" : offset == 4 ? "none" : "block"});
          check_all(fixture, op, manifest::make_problem(op, settings), placement, generator);
        }
    }
  }
}

TEST_CASE("a column-major layout of block scales holds the same scales") {
  Fixture fixture;
  std::mt19937 generator(37);
  const manifest::Op& op = fixture.op("rms_norm");
  tune::Placement placement;
  for (std::size_t i = 0; i < op.runtime.size(); ++i) {
    const RuntimeId id{static_cast<std::uint8_t>(i), RuntimeId::Kind::integer};
    if (op.runtime[i].name == "block_scale_row_stride") placement.runtime.emplace_back(id, 1);
    if (op.runtime[i].name == "block_scale_stride") placement.runtime.emplace_back(id, 64);
  }
  check_all(fixture, op,
            fixture.problem(op, {{"rows", "61"}, {"cols", "1000"}, {"dtype", "bf16"}, {"quantise", "block"}}),
            placement, generator);
}

}  // namespace kiln::gpu_tests

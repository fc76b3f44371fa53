// The bits of products: of what follows them, step by step, and of every run.
#include <cmath>
#include <string>
#include <string_view>

#include "gpu/products.hpp"
#include "tune/tensor_extent.hpp"

namespace kiln::gpu_tests {
namespace {

constexpr int runs = 3;
constexpr float product_scale = 0.75F;

/// What y holds after one launch into poison, or nothing where the config is not for these sizes.
Bits run_into_poison(Fixture& fixture, const manifest::Op& op, tune::VerificationCase& on,
                     const jit::Executable& executable) {
  const auto frame = manifest::frame_of({op, fixture.facts()}, on.problem());
  const TensorId y = tensor_named(op, "y");
  const tune::TensorExtent extent = tune::extent_of(op, op.tensors[y.index], frame);
  on.poison(fixture.stream.handle());
  if (!launch_product(fixture, executable, on.problem(), on.arguments())) return {};
  return read_bits(fixture, on.arguments().tensors[y.index], extent.elements * manifest::size_of(extent.type));
}

/// The same bits in each of a few runs, whatever was in memory; nothing where the config is not for these sizes.
Bits run_repeatedly(Fixture& fixture, const manifest::Op& op, tune::VerificationCase& on, const Candidate& candidate) {
  const Problem bucket = manifest::bucket_of(op, on.problem());
  const jit::Executable executable = fixture.load(op, *candidate.implementation, bucket, candidate.config);
  Bits first = run_into_poison(fixture, op, on, executable);
  for (int run = 1; run < runs && !first.empty(); ++run)
    CHECK_MESSAGE(run_into_poison(fixture, op, on, executable) == first,
                  fmt::format("{} {} {} {}: run {} differs", op.name, manifest::to_string(op, on.problem()),
                              candidate.implementation->name,
                              manifest::to_string(*candidate.implementation, candidate.config), run));
  return first;
}

/// Words of a gemm's problem: what follows the product is without functions that hosts round otherwise.
struct FusedGemm {
  const char *m, *n, *k, *dtype, *out, *activation, *residual, *scaling, *accumulate;

  [[nodiscard]] Problem problem(const Fixture& fixture, const manifest::Op& op) const {
    return fixture.problem(op, {{"m", m},
                                {"n", n},
                                {"k", k},
                                {"dtype", dtype},
                                {"out", out},
                                {"activation", activation},
                                {"residual", residual},
                                {"scaling", scaling},
                                {"accumulate", accumulate}});
  }
  [[nodiscard]] Problem product(const Fixture& fixture, const manifest::Op& op) const {
    return fixture.problem(op, {{"m", m}, {"n", n}, {"k", k}, {"dtype", dtype}, {"out", "f32"}});
  }
};

/// Its tensors on the host, and the op's order of steps, each rounded to f32 and the last to y's type.
class StepByStep {
 public:
  StepByStep(Fixture& fixture, const manifest::Op& op, const FusedGemm& of, tune::VerificationCase& on)
      : fixture_(fixture), op_(op), of_(of), on_(on), rows_(std::stoul(of.m)), columns_(std::stoul(of.n)) {
    on.poison(fixture.stream.handle());  // which gives y what it holds before
    bias_ = read("bias", type(), columns_);
    if (adds_residual()) residual_ = read("residual_in", type(), rows_ * columns_);
    if (accumulates()) held_ = read("y", type(), rows_ * columns_);
    const bool by_row = scaling() == "row";
    if (by_row || scaling() == "tensor") {
      x_scale_ = read("x_scale", manifest::DType::f32, by_row ? rows_ : 1);
      w_scale_ = read("w_scale", manifest::DType::f32, by_row ? columns_ : 1);
    }
  }

  [[nodiscard]] Bits results(const std::vector<float>& sums) const {
    std::vector<float> values(rows_ * columns_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t row = i / columns_, column = i % columns_;
      float factor = product_scale;
      if (scaling() == "tensor") factor = product_scale * (x_scale_[0] * w_scale_[0]);
      if (scaling() == "row") factor = product_scale * x_scale_[row] * w_scale_[column];
      float value = std::fma(factor, sums[i], bias_[column]);
      if (std::string_view(of_.activation) == "relu") value = value < 0 ? 0 : value;
      if (adds_residual()) value += residual_[i];
      if (accumulates()) value += held_[i];
      values[i] = value;
    }
    return to_bits(type(), values);
  }

 private:
  [[nodiscard]] manifest::DType type() const { return *manifest::parse_dtype(of_.out); }
  [[nodiscard]] std::string_view scaling() const { return of_.scaling; }
  [[nodiscard]] bool adds_residual() const { return std::string_view(of_.residual) == "add"; }
  [[nodiscard]] bool accumulates() const { return std::string_view(of_.accumulate) == "yes"; }
  [[nodiscard]] std::vector<float> read(std::string_view name, manifest::DType type, std::size_t count) const {
    const void* from = on_.arguments().tensors[tensor_named(op_, name).index];
    return to_numbers(type, read_bits(fixture_, from, static_cast<std::int64_t>(count) * manifest::size_of(type)));
  }

  Fixture& fixture_;
  const manifest::Op& op_;
  FusedGemm of_;
  tune::VerificationCase& on_;
  std::size_t rows_, columns_;
  std::vector<float> bias_, residual_, held_, x_scale_, w_scale_;
};

std::size_t different(const Bits& a, const Bits& b) {
  REQUIRE(a.size() == b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return count;
}

/// Every kind of kernel, with what follows the product and without, by one config.
void check_fused(Fixture& fixture, const FusedGemm& of, std::mt19937& generator) {
  const manifest::Op& op = fixture.op("gemm");
  const Problem problem = of.problem(fixture, op), product = of.product(fixture, op);
  const Problem bucket = manifest::bucket_of(op, problem), product_bucket = manifest::bucket_of(op, product);
  std::vector<Candidate> kinds = one_of_each_kind(fixture, op, bucket, 8, generator);
  prefetch(fixture, op, bucket, kinds);
  prefetch(fixture, op, product_bucket, kinds);

  tune::Placement placement;
  for (std::size_t i = 0; i < op.runtime.size(); ++i)
    if (op.runtime[i].name == "scale")
      placement.reals.emplace_back(RuntimeId{static_cast<std::uint8_t>(i), RuntimeId::Kind::real32}, product_scale);
  tune::VerificationCase on({op, fixture.facts()}, problem, fixture.arch(), fixture.cubins, generator(),
                            fixture.stream.handle(), placement);
  const StepByStep steps(fixture, op, of, on);
  const cuda::Buffer sums(std::stol(of.m) * std::stol(of.n) * 4);
  Arguments alone;
  for (const char* name : {"x", "w"}) {
    const TensorId operand = tensor_named(op, name);
    alone.set(operand, on.arguments().tensors[operand.index]);
  }
  alone.set(tensor_named(op, "y"), reinterpret_cast<const void*>(sums.pointer()));

  std::size_t compared = 0;
  for (const Candidate& each : kinds) {
    const jit::Executable executable = fixture.load(op, *each.implementation, product_bucket, each.config);
    const Bits fused = run_repeatedly(fixture, op, on, each);
    if (fused.empty() || !launch_product(fixture, executable, product, alone)) continue;
    const Bits bits = read_bits(fixture, alone.tensors[tensor_named(op, "y").index], sums.bytes());
    const std::size_t wrong = different(fused, steps.results(to_numbers(manifest::DType::f32, bits)));
    CHECK_MESSAGE(wrong == 0, fmt::format("{} {} {}: {} bytes of {} are not what the steps give",
                                          manifest::to_string(op, problem), each.implementation->name,
                                          manifest::to_string(*each.implementation, each.config), wrong, fused.size()));
    ++compared;
  }
  CHECK(compared > 2);
}

}  // namespace

TEST_CASE("what follows a product of gemm gives the bits of its steps one by one, the same in every run") {
  Fixture fixture;
  std::mt19937 generator(73);
  // Few rows, a few tiles with much of k, and tiles for all multiprocessors.
  check_fused(fixture, {"13", "264", "1032", "bf16", "bf16", "relu", "add", "row", "yes"}, generator);
  check_fused(fixture, {"200", "264", "1032", "f16", "f16", "none", "add", "tensor", "no"}, generator);
  check_fused(fixture, {"1030", "2176", "200", "bf16", "bf16", "relu", "add", "none", "yes"}, generator);
  check_fused(fixture, {"77", "136", "264", "bf16", "f32", "relu", "none", "row", "yes"}, generator);
}

TEST_CASE("batches and groups of products have the same bits in every run") {
  Fixture fixture;
  std::mt19937 generator(79);
  const manifest::Op &batched = fixture.op("gemm_batched"), &grouped = fixture.op("gemm_grouped");
  const auto check = [&](const manifest::Op& op, const Problem& problem) {
    std::vector<Candidate> kinds = one_of_each_kind(fixture, op, manifest::bucket_of(op, problem), 3, generator);
    prefetch(fixture, op, manifest::bucket_of(op, problem), kinds);
    tune::VerificationCase on({op, fixture.facts()}, problem, fixture.arch(), fixture.cubins, generator(),
                              fixture.stream.handle());
    std::size_t launched = 0;
    for (const Candidate& each : kinds) launched += run_repeatedly(fixture, op, on, each).empty() ? 0 : 1;
    CHECK(launched > 1);
  };
  check(batched,
        fixture.problem(batched, {{"batch", "7"}, {"m", "200"}, {"n", "264"}, {"k", "520"}, {"dtype", "bf16"}}));
  check(grouped,
        fixture.problem(grouped, {{"m", "29"}, {"n", "264"}, {"k", "1032"}, {"groups", "9"}, {"dtype", "bf16"}}));
  check(grouped,
        fixture.problem(
            grouped,
            {{"m", "700"}, {"n", "264"}, {"k", "520"}, {"groups", "9"}, {"dtype", "bf16"}, {"activation", "swiglu"}}));
}

}  // namespace kiln::gpu_tests

// gemm and its like over the fake driver: what their choices and run-time values mean, from a caller's side.
#include <cstring>

#include "e2e/engine_fixture.hpp"

namespace e2e {
namespace {

using kiln::Engine;

constexpr std::int64_t size(std::size_t count) { return static_cast<std::int64_t>(count); }

double at(const std::vector<float>& values, std::size_t i) { return static_cast<double>(values[i]); }

/// Elements of k of row `row` of x and row `column` of w, both [.., k].
double dot(const std::vector<float>& x, std::size_t row, const std::vector<float>& w, std::size_t column,
           std::size_t k) {
  double sum = 0;
  for (std::size_t i = 0; i < k; ++i) sum += at(x, row * k + i) * at(w, column * k + i);
  return sum;
}

/// Small numbers of either sign, other ones for each seed.
std::vector<float> numbers(std::size_t count, int seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((static_cast<int>(i) * 37 + seed * 11) % 29 - 14) / 16;
  return values;
}

double silu(double value) { return value / (1 + std::exp(-value)); }

}  // namespace

TEST_CASE("a product ends as its choices say, in the order that they have") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const kiln::Op op = engine.op("gemm");
  constexpr std::size_t m = 5, n = 12, k = 20;
  const auto x = numbers(m * k, 1), w = numbers(n * k, 2), bias = numbers(n, 3), residual = numbers(m * n / 2, 4),
             held = numbers(m * n / 2, 5), x_scale = numbers(m, 6), w_scale = numbers(n, 7);
  const Floats x_at(x), w_at(w), bias_at(bias), residual_at(residual), y_at(held), x_scale_at(x_scale),
      w_scale_at(w_scale);
  const kiln::Problem problem = op.problem({{"m", size(m)},
                                            {"n", size(n)},
                                            {"k", size(k)},
                                            {"dtype", "f32"},
                                            {"activation", "swiglu"},
                                            {"residual", "add"},
                                            {"scaling", "row"},
                                            {"accumulate", "yes"}});
  op.launch(problem,
            op.arguments({{"x", x_at.address()},
                          {"w", w_at.address()},
                          {"bias", bias_at.address()},
                          {"residual_in", residual_at.address()},
                          {"x_scale", x_scale_at.address()},
                          {"w_scale", w_scale_at.address()},
                          {"y", y_at.address()},
                          {"scale", 0.5}}),
            machine.stream());
  const std::vector<float> got = y_at.download();
  for (std::size_t row = 0; row < m; ++row) {
    for (std::size_t column = 0; column < n / 2; ++column) {
      const auto z = [&](std::size_t c) {
        return 0.5 * at(x_scale, row) * at(w_scale, c) * dot(x, row, w, c, k) + at(bias, c);
      };
      const std::size_t i = row * n / 2 + column;
      const double wanted = silu(z(2 * column)) * z(2 * column + 1) + at(residual, i) + at(held, i);
      CHECK(at(got, i) == doctest::Approx(wanted).epsilon(1e-4));
    }
  }
}

TEST_CASE("a gradient of a weight is tuned once for all numbers of tokens of a bucket, other products for each k") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const kiln::Op op = engine.op("gemm");
  constexpr std::size_t outputs = 20, inputs = 12, most = 128;
  const auto dy = numbers(most * outputs, 1), x = numbers(most * inputs, 2);
  const Floats dy_at(dy), x_at(x), dw_at(outputs * inputs);
  const auto launch = [&](const char* layout, std::size_t tokens) {
    op.launch(
        op.problem(
            {{"m", size(outputs)}, {"n", size(inputs)}, {"k", size(tokens)}, {"dtype", "f32"}, {"layout", layout}}),
        op.arguments({{"x", dy_at.address()}, {"w", x_at.address()}, {"y", dw_at.address()}}), machine.stream());
  };
  launch("tn", most);
  const std::int64_t compiles = engine.stats().compiles;
  for (std::size_t tokens = most / 2 + 1; tokens <= most / 2 + 50; ++tokens) {
    launch("tn", tokens);
    const std::vector<float> dw = dw_at.download();
    double worst = 0;
    for (std::size_t i = 0; i < outputs * inputs; ++i) {
      double wanted = 0;
      for (std::size_t token = 0; token < tokens; ++token)
        wanted += at(dy, token * outputs + i / inputs) * at(x, token * inputs + i % inputs);
      worst = std::max(worst, std::abs(at(dw, i) - wanted));
    }
    CAPTURE(tokens);
    CHECK(worst < 1e-4);
  }
  CHECK(engine.stats().tunes == 1);
  CHECK(engine.stats().compiles == compiles);
  CHECK(engine.stats().hot >=
        50 - 8);  // a record's configs, eight at most, are loaded when a length first asks for them
  for (const char* layout : {"nt", "nn"}) {
    const std::int64_t tunes = engine.stats().tunes;
    launch(layout, 40);
    launch(layout, 48);
    CHECK(engine.stats().tunes == tunes + 2);
  }
}

TEST_CASE("scales of blocks are found where their strides say, column by column too") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const kiln::Op op = engine.op("gemm");
  constexpr std::size_t m = 3, n = 130, k = 260, k_blocks = 3, n_blocks = 2;
  const auto x = numbers(m * k, 1), w = numbers(n * k, 2), x_scale = numbers(m * k_blocks, 3),
             w_scale = numbers(n_blocks * k_blocks, 4);
  const Floats x_at(x), w_at(w), x_scale_at(x_scale), w_scale_at(w_scale), y_at(m * n);
  op.launch(op.problem({{"m", size(m)}, {"n", size(n)}, {"k", size(k)}, {"dtype", "f32"}, {"scaling", "block"}}),
            op.arguments({{"x", x_at.address()},
                          {"w", w_at.address()},
                          {"x_scale", x_scale_at.address()},
                          {"w_scale", w_scale_at.address()},
                          {"x_scale_stride", 1},
                          {"x_scale_k_stride", size(m)},
                          {"y", y_at.address()}}),
            machine.stream());
  const std::vector<float> got = y_at.download();
  for (const std::size_t column : {std::size_t{0}, std::size_t{127}, std::size_t{129}}) {
    double wanted = 0;
    for (std::size_t i = 0; i < k; ++i)
      wanted += at(x, k + i) * at(x_scale, i / 128 * m + 1) * at(w, column * k + i) *
                at(w_scale, column / 128 * k_blocks + i / 128);
    CHECK(at(got, n + column) == doctest::Approx(wanted).epsilon(1e-4));
  }
}

TEST_CASE("callers who name one type get what they always got, and 8-bit ones a result that holds it") {
  const Machine machine;
  const Engine engine(options(""));
  const kiln::Op op = engine.op("gemm");
  const auto text = [&](const char* dtype) {
    return engine.explain(op, op.problem({{"m", 16}, {"n", 64}, {"k", 64}, {"dtype", dtype}})).key;
  };
  CHECK_MESSAGE(contains(text("bf16"), "dtype=bf16 w_dtype=bf16 out=bf16 layout=nt"), text("bf16"));
  CHECK_MESSAGE(contains(text("f32"), "dtype=f32 w_dtype=f32 out=f32 layout=nt"), text("f32"));
  CHECK_MESSAGE(contains(text("e4m3"), "dtype=e4m3 w_dtype=e4m3 out=bf16 layout=nt"), text("e4m3"));
}

TEST_CASE("every type and choice of the products is tuned and verified, by the tensor cores where they take it") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const auto tuned_by = [&](const char* name, std::initializer_list<kiln::Op::Setting> settings) {
    const kiln::Op op = engine.op(name);
    return std::string(op.plan(op.problem(settings)).implementation());
  };
  SUBCASE("dw of a linear layer, added in f32 to a gradient that is there") {
    CHECK(tuned_by("gemm", {{"m", 32},
                            {"n", 64},
                            {"k", 48},
                            {"dtype", "bf16"},
                            {"out", "f32"},
                            {"layout", "tn"},
                            {"accumulate", "yes"}}) != "simt");
  }
  SUBCASE("dx of a linear layer") {
    CHECK(tuned_by("gemm", {{"m", 32}, {"n", 64}, {"k", 48}, {"dtype", "bf16"}, {"layout", "nn"}}) != "simt");
  }
  SUBCASE("mixed 8-bit inputs with scales of blocks") {
    CHECK_FALSE(
        tuned_by("gemm",
                 {{"m", 16}, {"n", 48}, {"k", 160}, {"dtype", "e5m2"}, {"w_dtype", "e4m3"}, {"scaling", "block"}})
            .empty());
  }
  SUBCASE("a result in 8 bits under a scale of its own") {
    CHECK(tuned_by("gemm",
                   {{"m", 16}, {"n", 64}, {"k", 64}, {"dtype", "bf16"}, {"out", "e4m3"}, {"activation", "swiglu"}}) !=
          "simt");
  }
  SUBCASE("few rows, of which the results have an odd length") {
    CHECK(tuned_by("gemm", {{"m", 3}, {"n", 45}, {"k", 72}, {"dtype", "bf16"}}) == "stream");
  }
  SUBCASE("a batch") {
    CHECK(tuned_by("gemm_batched",
                   {{"batch", 3}, {"m", 16}, {"n", 32}, {"k", 64}, {"dtype", "bf16"}, {"scaling", "tensor"}}) !=
          "simt");
    CHECK_FALSE(
        tuned_by("gemm_batched", {{"batch", 3}, {"m", 5}, {"n", 7}, {"k", 9}, {"dtype", "f32"}, {"residual", "add"}})
            .empty());
  }
  SUBCASE("groups") {
    CHECK(tuned_by("gemm_grouped", {{"m", 20}, {"n", 33}, {"k", 64}, {"groups", 5}, {"dtype", "f16"}}) == "stream");
    CHECK(tuned_by("gemm_grouped",
                   {{"m", 40}, {"n", 32}, {"k", 64}, {"groups", 5}, {"dtype", "bf16"}, {"activation", "swiglu"}}) !=
          "simt");
    CHECK_FALSE(tuned_by("gemm_grouped",
                         {{"m", 4}, {"n", 9}, {"k", 130}, {"groups", 7}, {"dtype", "e4m3"}, {"scaling", "block"}})
                    .empty());
  }
  CHECK(engine.stats().tunes >= 1);
}

TEST_CASE("groups of rows meet their own weights, empty ones and rows of none included") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const kiln::Op op = engine.op("gemm_grouped");
  constexpr std::size_t m = 9, n = 6, k = 8, groups = 4;
  const std::vector<std::int32_t> offsets = {1, 4, 4, 8, 8};
  const auto x = numbers(m * k, 1), w = numbers(groups * n * k, 2);
  const std::vector<float> before(m * n, 77.0F);
  std::vector<float> bits(offsets.size());
  std::memcpy(bits.data(), offsets.data(), bits.size() * sizeof(float));
  const Floats x_at(x), w_at(w), y_at(before), offsets_at(bits);
  op.launch(
      op.problem({{"m", size(m)}, {"n", size(n)}, {"k", size(k)}, {"groups", size(groups)}, {"dtype", "f32"}}),
      op.arguments(
          {{"x", x_at.address()}, {"w", w_at.address()}, {"offsets", offsets_at.address()}, {"y", y_at.address()}}),
      machine.stream());
  const std::vector<float> got = y_at.download();
  for (std::size_t row = 0; row < m; ++row) {
    const bool inside = row >= 1 && row < 8;
    const std::size_t group = row < 4 ? 0 : 2;
    for (std::size_t column = 0; column < n; ++column)
      CHECK(at(got, row * n + column) ==
            doctest::Approx(inside ? dot(x, row, w, group * n + column, k) : 77).epsilon(1e-5));
  }
}

TEST_CASE("products of a batch share a weight whose stride is 0") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const kiln::Op op = engine.op("gemm_batched");
  constexpr std::size_t batch = 3, m = 4, n = 6, k = 8;
  const auto x = numbers(batch * m * k, 1), w = numbers(n * k, 2);
  const Floats x_at(x), w_at(w), y_at(batch * m * n);
  op.launch(op.problem({{"batch", size(batch)}, {"m", size(m)}, {"n", size(n)}, {"k", size(k)}, {"dtype", "f32"}}),
            op.arguments({{"x", x_at.address()}, {"w", w_at.address()}, {"w_batch_stride", 0}, {"y", y_at.address()}}),
            machine.stream());
  const std::vector<float> got = y_at.download();
  for (std::size_t row = 0; row < batch * m; ++row)
    for (std::size_t column = 0; column < n; ++column)
      CHECK(at(got, row * n + column) == doctest::Approx(dot(x, row, w, column, k)).epsilon(1e-5));
}

}  // namespace e2e

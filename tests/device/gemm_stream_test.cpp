#include <doctest/doctest.h>

#include "gemm/stream.cuh"
#include "kernels.hpp"

namespace {

using kiln::gemm::Accumulate;
using kiln::gemm::Activation;
using kiln::gemm::Residual;
using kiln::gemm::Scaling;
template <typename Out, Scaling scaling = Scaling::none, Activation activation = Activation::none>
using Ending = kiln::gemm::Ending<Out, activation, Residual::none, scaling, Accumulate::no>;

/// Where there is a bound, x has so many rows, of which those past m are NaN, and m is held where a device would hold it.
struct Sizes {
  std::int64_t m, n, k, bound = 0;
};

/// The first `count` rows as doubles, one after another.
template <typename T>
std::vector<double> doubles(test::Matrix<T>& of, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t column = 0; column < of.columns(); ++column) values.push_back(of.value(row, column));
  }
  return values;
}

template <typename X, typename W, class Config, int rows_of_x, int warp_rows, int warps_n, int warps_k, int stages,
          int blocks>
class Stream {
 public:
  using Out = typename Config::out;
  static constexpr float untouched = 3;
  static constexpr bool scaled = Config::scaling != Scaling::none, by_block = Config::scaling == Scaling::block;

  explicit Stream(Sizes of)
      : of_(of),
        bound_(std::max(of.m, of.bound)),
        x_(bound_, of.k, of.k + 16),
        w_(test::Matrix<W>::random(of.n, of.k, of.k + 32, 2)),
        bias_(test::Matrix<Out>::random(1, of.n, of.n, 3)),
        y_(bound_, of.n, of.n + 3) {
    auto rows = test::Matrix<X>::random(of.m, of.k, of.k, 1);
    for (std::int64_t row = 0; row < of.m; ++row) {
      for (std::int64_t i = 0; i < of.k; ++i) x_.at(row, i) = rows.at(row, i);
    }
    for (std::int64_t row = of.m; row < bound_; ++row) {
      for (std::int64_t column = 0; column < of.n; ++column) y_.at(row, column) = kiln::from_float<Out>(untouched);
    }
    const std::int64_t last_k = blocks_of(of.k);
    for (std::int64_t i = 0; i < bound_ * last_k; ++i) x_scale_.push_back(i / last_k < of.m ? scale_of(i) : NAN);
    for (std::int64_t i = 0; i < std::max(of.n, blocks_of(of.n) * last_k); ++i) w_scale_.push_back(scale_of(i + 3));
  }

  void run(std::uint32_t seed) {
    constexpr int stage_bytes = (warp_rows + rows_of_x) * 128, tiles = warps_n * warp_rows / 16 * rows_of_x / 8;
    constexpr int exchange_bytes = blocks == 1 ? 0 : (tiles + blocks - 1) / blocks * blocks * 512 + 16;
    const auto columns = static_cast<unsigned>((of_.n + warps_n * warp_rows - 1) / (warps_n * warp_rows));
    const int length = static_cast<int>(of_.m);
    const kiln::axis_length rows = test::length(bound_, of_.bound == 0 ? nullptr : &length);
    emulator::launch({.grid = {columns * blocks},
                      .block = {warps_n * warps_k * 32},
                      .shared_bytes = warps_n * warps_k * stages * stage_bytes + exchange_bytes,
                      .cluster = {blocks},
                      .seed = seed},
                     [&] {
                       gemm_stream<X, W, Config, rows_of_x, warp_rows, warps_n, warps_k, stages, blocks, 1>(
                           x_.data(), w_.data(), y_.data(), bias_.data(), nullptr, x_scale_.data(), w_scale_.data(),
                           nullptr, rows, of_.n, of_.k, x_.stride(), w_.stride(), y_.stride(), 0,
                           by_block ? blocks_of(of_.k) : 1, by_block ? blocks_of(of_.k) : 1, 1, 1, 1.0f);
                     });
  }

  /// The largest distance of y from what it should be in double; infinite where anything else was written.
  double error() {
    const std::vector<double> x = doubles(x_, of_.m), w = doubles(w_, of_.n);
    double largest = y_.margins_untouched() ? 0 : INFINITY;
    for (std::int64_t row = 0; row < bound_; ++row) {
      for (std::int64_t column = 0; column < of_.n; ++column) {
        const double got = y_.value(row, column);
        if (row >= of_.m) {
          largest = got == untouched ? largest : INFINITY;
          continue;
        }
        double sum = 0;
        for (std::int64_t i = 0; i < of_.k; ++i)
          sum += x[row * of_.k + i] * w[column * of_.k + i] * scale_at(row, column, i);
        sum += bias_.value(0, column);
        if (Config::activation == Activation::relu) sum = std::max(sum, 0.0);
        largest =
            std::max(largest, test::distance(got, kiln::to_double(kiln::from_float<Out>(static_cast<float>(sum)))));
      }
    }
    return largest;
  }

 private:
  static std::int64_t blocks_of(std::int64_t extent) { return by_block ? (extent + 127) / 128 : 1; }
  /// Powers of two: so that sums stay exact.
  static float scale_of(std::int64_t i) { return scaled ? std::exp2(static_cast<float>(i * 7 % 5 - 2)) : 1.0f; }
  [[nodiscard]] double scale_at(std::int64_t row, std::int64_t column, std::int64_t i) const {
    if (!scaled) return 1;
    if (!by_block)
      return Config::scaling == Scaling::row ? x_scale_[row] * w_scale_[column] : x_scale_[0] * w_scale_[0];
    return x_scale_[row * blocks_of(of_.k) + i / 128] * w_scale_[column / 128 * blocks_of(of_.k) + i / 128];
  }

  Sizes of_;
  std::int64_t bound_;
  test::Matrix<X> x_;
  test::Matrix<W> w_;
  test::Matrix<Out> bias_, y_;
  std::vector<float> x_scale_, w_scale_;
};

template <typename X, class Config, int rows_of_x, int warp_rows, int warps_n, int warps_k, int stages, int blocks,
          typename W = X>
double error_of(Sizes of, std::uint32_t seed) {
  Stream<X, W, Config, rows_of_x, warp_rows, warps_n, warps_k, stages, blocks> stream(of);
  stream.run(seed);
  return stream.error();
}

using kiln::bf16;
using kiln::e4m3;
using kiln::e5m2;
using kiln::f16;

TEST_CASE(
    "gemm_stream multiplies any few rows, up to odd ends of n and ends of k within a line, in every order of threads") {
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    CHECK(error_of<bf16, Ending<bf16>, 8, 16, 1, 4, 3, 1>({3, 37, 456}, seed) == 0);
  }
  CHECK(error_of<bf16, Ending<bf16>, 8, 32, 1, 2, 2, 1>({1, 33, 8}, 4) == 0);
  CHECK(error_of<f16, Ending<f16, Scaling::none, Activation::relu>, 8, 64, 1, 2, 2, 1>({8, 70, 640}, 5) == 0);
  CHECK(error_of<bf16, Ending<float>, 16, 128, 1, 1, 3, 1>({9, 131, 200}, 6) == 0);
  CHECK(error_of<bf16, Ending<bf16>, 32, 64, 1, 2, 2, 1>({17, 65, 328}, 7) == 0);
  CHECK(error_of<f16, Ending<f16>, 64, 64, 2, 2, 2, 1>({64, 190, 264}, 8) == 0);
}

TEST_CASE("gemm_stream shares k over a cluster, whose last blocks may get none of it, or none of the sums to add") {
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    CHECK(error_of<bf16, Ending<bf16>, 16, 32, 1, 2, 2, 4>({13, 75, 904}, seed) == 0);
  }
  CHECK(error_of<bf16, Ending<bf16>, 8, 16, 1, 2, 2, 8>({5, 16, 136}, 4) == 0);
  CHECK(error_of<f16, Ending<f16>, 64, 64, 2, 1, 2, 2>({50, 129, 520}, 5) == 0);
}

TEST_CASE("gemm_stream writes no row past a length on the device, and reads no NaN from there into others") {
  CHECK(error_of<bf16, Ending<bf16>, 16, 32, 1, 2, 2, 1>({5, 40, 72, 16}, 1) == 0);
  CHECK(error_of<bf16, Ending<bf16>, 16, 32, 1, 2, 2, 2>({9, 40, 304, 12}, 2) == 0);
  CHECK(error_of<bf16, Ending<bf16>, 8, 16, 1, 2, 2, 1>({0, 40, 72, 7}, 3) == 0);
}

TEST_CASE("gemm_stream multiplies floats of 8 bits, whole or scaled by row, by matrix or by block of k") {
  CHECK(error_of<e4m3, Ending<bf16, Scaling::tensor>, 16, 32, 1, 2, 2, 1>({9, 43, 400}, 1) == 0);
  CHECK(error_of<e4m3, Ending<float, Scaling::row>, 8, 32, 1, 2, 2, 2, e5m2>({3, 32, 528}, 2) == 0);
  CHECK(error_of<e5m2, Ending<f16>, 32, 64, 1, 1, 2, 1, e4m3>({20, 64, 144}, 3) == 0);
  CHECK(error_of<e4m3, Ending<float, Scaling::block>, 16, 64, 1, 2, 2, 1>({11, 150, 656, 16}, 4) == 0);
  CHECK(error_of<e4m3, Ending<float, Scaling::block>, 8, 32, 2, 1, 3, 2>({8, 40, 1040}, 5) == 0);
}

}  // namespace

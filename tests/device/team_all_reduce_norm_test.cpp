// all_reduce_norm in one kernel, beside its reference and beside the kernels of the pair.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "all_reduce_norm/fused.cuh"
#include "all_reduce_norm/push.cuh"
#include "all_reduce_norm/reference.cuh"
#include "kernels.hpp"
#include "matrices.hpp"
#include "team.hpp"

namespace {

using kiln::bf16;
using kiln::e4m3;
using kiln::quantise_mode;
using kiln::residual_mode;
using kiln::team::Report;
using test::Matrix;

constexpr int most_rows = 8, threads = 64;
constexpr float epsilon = 1e-6f, y_scale = 1.0f / 64;

template <typename T>
struct Outputs {
  explicit Outputs(int cols)
      : sum(most_rows, cols, cols),
        y(most_rows, cols, cols),
        quantised(most_rows, cols, cols),
        scales(most_rows, (cols + 127) / 128, (cols + 127) / 128 + 1) {}
  Matrix<T> sum, y;
  Matrix<e4m3> quantised;
  Matrix<float> scales;
};

/// Of two words a thread, in rows of `cols` elements.
template <typename T, residual_mode Residual, quantise_mode Quantise>
struct Norms {
  static constexpr int n = 16 / sizeof(T), words = 2;

  Norms(std::vector<int> rows_of, int columns)
      : rows(std::move(rows_of)),
        cols(columns),
        residual(Matrix<T>::random(most_rows, cols, cols, 11)),
        weight(Matrix<T>::random(1, cols, cols, 12)),
        team(world(), world() * most_rows * row_words() * 16),
        reference(columns) {
    for (int rank = 0; rank < world(); ++rank) {
      x.push_back(Matrix<T>::random(most_rows, cols, cols, static_cast<std::uint32_t>(rank + 1)));
      fused.emplace_back(cols);
      pair.emplace_back(cols);
    }
  }

  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] int row_words() const { return cols / n; }
  Outputs<T>& of(std::vector<Outputs<T>>& all, int rank) { return all[static_cast<std::size_t>(rank)]; }
  const uint4* part(int rank) { return reinterpret_cast<const uint4*>(x[static_cast<std::size_t>(rank)].data()); }
  [[nodiscard]] kiln::axis_length length(int rank) const { return test::length(rows[static_cast<std::size_t>(rank)]); }

  void run(test::TeamLaunch how, int launches = 1) {
    how.blocks = most_rows;
    how.threads = threads;
    test::with_world(rows.size(), [&](auto world) {
      team.run(how, launches, [&](int, int rank) {
        Outputs<T>& to = of(fused, rank);
        kiln::all_reduce_norm_fused<T, world, threads, words, Residual, Quantise>(
            part(rank), residual.data(), weight.data(), &y_scale, to.sum.data(), to.y.data(), to.quantised.data(),
            to.scales.data(), length(rank), row_words(), to.scales.stride(), 1, epsilon, team.argument(rank));
      });
    });
  }
  void run_pair() {
    std::vector<Matrix<T>> reduced(rows.size(), Matrix<T>(most_rows, cols, cols));
    test::with_world(rows.size(), [&](auto world) {
      team.run({.blocks = 2, .seed = 1}, 1, [&](int, int rank) {
        kiln::all_reduce_push<T, world, 32>(
            part(rank), reinterpret_cast<uint4*>(reduced[static_cast<std::size_t>(rank)].data()), length(rank),
            row_words(), most_rows, row_words(), most_rows, 1, team.workspace(), team.argument(rank));
      });
    });
    for (int rank = 0; rank < world(); ++rank) {
      Outputs<T>& to = of(pair, rank);
      const T* const from = reduced[static_cast<std::size_t>(rank)].data();
      emulator::launch({.grid = {most_rows}, .block = {threads}, .seed = 1}, [&] {
        kiln::all_reduce_norm_rows<T, threads, words, Residual, Quantise>(
            from, residual.data(), weight.data(), &y_scale, to.sum.data(), to.y.data(), to.quantised.data(),
            to.scales.data(), length(rank), cols, to.scales.stride(), 1, epsilon);
      });
    }
  }
  /// What a rank does not have counts as 0.
  void run_reference() {
    Matrix<T> all(most_rows * world(), cols, cols);
    for (int row = 0; row < most_rows * world(); ++row) {
      const auto rank = static_cast<std::size_t>(row / most_rows);
      for (int column = 0; column < cols; ++column)
        all.at(row, column) =
            row % most_rows < rows[rank] ? x[rank].at(row % most_rows, column) : kiln::from_float<T>(0);
    }
    Matrix<float> sum(most_rows, cols, cols), y = sum;
    emulator::launch({.grid = {most_rows}, .block = {256}}, [&] {
      kiln::all_reduce_norm_reference<T, Residual, Quantise>(
          all.data(), residual.data(), weight.data(), &y_scale, sum.data(), y.data(), y.data(), reference.scales.data(),
          most_rows, cols, world(), reference.scales.stride(), 1, epsilon);
    });
    reference_sum = sum, reference_y = y;
  }

  /// Whether the outputs are the reference's, where the rank has rows, and untouched elsewhere.
  bool right(Outputs<T>& got, int rank) {
    const int held = rows[static_cast<std::size_t>(rank)];
    const auto wanted = [&](std::int64_t row, std::int64_t column) { return reference_y.value(row, column); };
    bool all = true;
    if constexpr (Residual == residual_mode::add)
      all = test::error_of(got.sum, held, [&](auto row, auto column) { return reference_sum.value(row, column); }) == 0;
    if constexpr (Quantise == quantise_mode::none) return all && test::error_of(got.y, held, wanted) < 4e-2;
    for (int row = 0; row < most_rows; ++row) {
      for (int column = 0; column < cols; ++column) {
        const double value = got.quantised.value(row, column);
        if (row >= held ? !std::isnan(value)
                        : !(test::distance(value, wanted(row, column)) <= std::fabs(wanted(row, column)) * 0.07 + 0.02))
          return false;
      }
    }
    if constexpr (Quantise == quantise_mode::block)
      all = all && test::error_of(got.scales, held,
                                  [&](auto row, auto column) { return reference.scales.value(row, column); }) < 1e-3;
    return all && got.quantised.margins_untouched();
  }

  std::vector<int> rows;
  int cols;
  std::vector<Matrix<T>> x;
  Matrix<T> residual, weight;
  test::Team team;
  std::vector<Outputs<T>> fused, pair;
  Outputs<T> reference;
  Matrix<float> reference_sum{1, 1, 1}, reference_y{1, 1, 1};
};

template <typename T, residual_mode Residual, quantise_mode Quantise>
void check(const std::vector<int>& rows, int cols, std::uint32_t seed) {
  CAPTURE(rows.size());
  CAPTURE(cols);
  CAPTURE(seed);
  Norms<T, Residual, Quantise> norms(rows, cols);
  norms.run_reference();
  norms.run({.seed = seed, .resident = seed % 2 == 0 ? 0u : 1u}, 3);
  norms.run_pair();
  for (int rank = 0; rank < norms.world(); ++rank) {
    CAPTURE(rank);
    CHECK(norms.right(norms.of(norms.fused, rank), rank));
    CHECK(norms.right(norms.of(norms.pair, rank), rank));
    CHECK(norms.team.idle(rank, 4));
    CHECK(norms.team.packets_are_clear(rank));
    CHECK(norms.team.report(rank).state == Report::none);
  }
}

TEST_CASE("all_reduce_norm gives its reference's results in one kernel and in two, whatever rows each rank has") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    for (const std::vector<int>& rows : std::vector<std::vector<int>>{{5}, {8, 8}, {0, 3}, {8, 1, 6}}) {
      check<bf16, residual_mode::add, quantise_mode::none>(rows, 520, seed);
      check<bf16, residual_mode::add, quantise_mode::block>(rows, 520, seed);
    }
    check<bf16, residual_mode::none, quantise_mode::tensor>({8, 7}, 1024, seed);
    check<float, residual_mode::add, quantise_mode::block>({8, 2, 3, 8}, 456, seed);
    check<float, residual_mode::none, quantise_mode::none>({4, 2}, 8, seed);
    check<kiln::f16, residual_mode::add, quantise_mode::tensor>({8, 8, 8, 8, 8, 8, 8, 8}, 264, seed);
  }
}

TEST_CASE("all_reduce_norm without a rank gives NaN in all outputs, and tells which") {
  Norms<bf16, residual_mode::add, quantise_mode::block> norms({8, 5, 8}, 264);
  norms.team.timeout_ns = 100'000;
  norms.run({.seed = 3, .absent = 2});
  for (const int rank : {0, 1}) {
    Outputs<bf16>& got = norms.of(norms.fused, rank);
    CHECK(norms.team.reports(rank, Report::timed_out, 2));
    for (int row = 0; row < norms.rows[static_cast<std::size_t>(rank)]; ++row) {
      CHECK(got.quantised.at(row, row).bits == 0x7f);
      CHECK(got.sum.at(row, row).bits == 0xffff);
    }
    CHECK(got.quantised.margins_untouched());
  }
}

}  // namespace

#include <doctest/doctest.h>

#include "kernels.hpp"
#include "softmax/block_row.cuh"
#include "softmax/cluster_row.cuh"
#include "softmax/streaming.cuh"
#include "softmax/warp_row.cuh"
#include "softmax_backward/row.cuh"

namespace {

using kiln::bf16;
using kiln::Mask;
using test::length;

constexpr float scale = 0.5f;

/// The logits of a row, -inf for columns that it does not see.
template <typename Logit>
double softmax_error(test::Matrix<bf16>& y, Logit logit) {
  return test::error_of(y, y.rows(), [&](std::int64_t row, std::int64_t column) {
    double sum = 0;
    for (std::int64_t i = 0; i < y.columns(); ++i) sum += std::exp(logit(row, i));
    return sum == 0 ? 0 : std::exp(logit(row, column)) / sum;
  });
}

/// Rows of an odd length, more than columns where the first ones then see nothing.
struct Rows {
  test::Matrix<bf16> x, y;

  Rows(std::int64_t rows, std::int64_t columns)
      : x(test::Matrix<bf16>::random(rows, columns, columns + 2, 1)), y(rows, columns, columns + 3) {}

  double error() {
    return softmax_error(y, [this](std::int64_t row, std::int64_t i) { return scale * x.value(row, i); });
  }
  double causal_error() {
    return softmax_error(y, [this](std::int64_t row, std::int64_t i) {
      return i < row + 1 + x.columns() - x.rows() ? scale * x.value(row, i) : -INFINITY;
    });
  }
};

TEST_CASE("softmax takes rows of odd lengths by warps, by blocks and in pieces") {
  for (const std::uint32_t seed : test::seeds) {
    Rows narrow(7, 61), wide(7, 461), streamed(7, 1999);
    emulator::launch({.grid = {2}, .block = {64}, .seed = seed}, [&] {
      kiln::softmax_warp_row<bf16, 64, 16, 4, 1, Mask::none>(narrow.x.data(), nullptr, nullptr, narrow.y.data(),
                                                             length(7), length(61), narrow.x.stride(),
                                                             narrow.y.stride(), 0, 1, 7, scale);
    });
    emulator::launch({.grid = {7}, .block = {64}, .seed = seed}, [&] {
      kiln::softmax_block_row<bf16, 64, 8, 1, Mask::none>(wide.x.data(), nullptr, nullptr, wide.y.data(), length(7),
                                                          length(461), wide.x.stride(), wide.y.stride(), 0, 1, 7,
                                                          scale);
    });
    emulator::launch({.grid = {7}, .block = {64}, .seed = seed}, [&] {
      kiln::softmax_streaming<bf16, 64, 8, Mask::none>(streamed.x.data(), nullptr, nullptr, streamed.y.data(),
                                                       length(7), length(1999), streamed.x.stride(),
                                                       streamed.y.stride(), 0, 1, 7, scale);
    });
    CHECK(narrow.error() < 1e-3);
    CHECK(wide.error() < 1e-3);
    CHECK(streamed.error() < 1e-4);
  }
}

TEST_CASE("a causal softmax gives zeros for what a row does not see, which may be all of it") {
  for (const std::uint32_t seed : test::seeds) {
    Rows wide(7, 461), tall(70, 67);
    const auto run = [&](Rows& of) {
      emulator::launch({.grid = {static_cast<unsigned>(of.x.rows())}, .block = {64}, .seed = seed}, [&] {
        kiln::softmax_block_row<bf16, 64, 8, 1, Mask::causal>(of.x.data(), nullptr, nullptr, of.y.data(),
                                                              length(of.x.rows()), length(of.x.columns()),
                                                              of.x.stride(), of.y.stride(), 0, 1, of.x.rows(), scale);
      });
    };
    run(wide);
    run(tall);
    CHECK(wide.causal_error() < 1e-3);
    CHECK(tall.causal_error() < 8e-3);
  }
}

TEST_CASE("softmax adds a mask's numbers, or leaves out what it does not keep; masks have fewer rows than x") {
  auto bias = test::Matrix<bf16>::random(2, 461, 463, 2);
  std::vector<unsigned char> keep(2 * 465);
  for (std::size_t i = 0; i < keep.size(); ++i) keep[i] = i % 3 != 0;
  for (const std::uint32_t seed : test::seeds) {
    Rows added(6, 461), kept(6, 461);
    emulator::launch({.grid = {6}, .block = {64}, .seed = seed}, [&] {
      kiln::softmax_block_row<bf16, 64, 8, 1, Mask::additive>(added.x.data(), bias.data(), nullptr, added.y.data(),
                                                              length(6), length(461), added.x.stride(),
                                                              added.y.stride(), bias.stride(), 2, 6, scale);
      kiln::softmax_block_row<bf16, 64, 8, 1, Mask::boolean>(kept.x.data(), nullptr, keep.data(), kept.y.data(),
                                                             length(6), length(461), kept.x.stride(), kept.y.stride(),
                                                             465, 2, 6, scale);
    });
    CHECK(softmax_error(added.y, [&](std::int64_t row, std::int64_t i) {
            return scale * added.x.value(row, i) + bias.value(row % 2, i);
          }) < 1e-3);
    CHECK(softmax_error(kept.y, [&](std::int64_t row, std::int64_t i) {
            return keep[static_cast<std::size_t>(row % 2 * 465 + i)] != 0 ? scale * kept.x.value(row, i) : -INFINITY;
          }) < 1e-3);
  }
}

TEST_CASE("softmax's cluster_row agrees across the blocks of a cluster") {
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    Rows of(3, 3001);
    emulator::launch({.grid = {12}, .block = {64}, .shared_bytes = 16 * 64 * 2, .cluster = {4}, .seed = seed}, [&] {
      kiln::softmax_cluster_row<bf16, 4, 64, 2, 1, Mask::causal>(of.x.data(), of.y.data(), length(3), length(3001),
                                                                 of.x.stride(), of.y.stride(), 3, scale);
    });
    CHECK(of.causal_error() < 1e-4);
  }
}

TEST_CASE("a row with a NaN that it sees is NaN everywhere, one that does not see it nowhere") {
  for (const std::uint32_t seed : test::seeds) {
    Rows of(3, 3001);
    of.x.at(0, 5) = kiln::from_float<bf16>(NAN);
    of.x.at(1, 3000) = kiln::from_float<bf16>(NAN);  // row 1 does not see it
    emulator::launch({.grid = {12}, .block = {64}, .shared_bytes = 16 * 64 * 2, .cluster = {4}, .seed = seed}, [&] {
      kiln::softmax_cluster_row<bf16, 4, 64, 2, 1, Mask::causal>(of.x.data(), of.y.data(), length(3), length(3001),
                                                                 of.x.stride(), of.y.stride(), 3, scale);
    });
    int numbers = 0, nans_of_next = 0;
    for (std::int64_t i = 0; i < 3001; ++i) {
      numbers += std::isnan(of.y.value(0, i)) ? 0 : 1;
      nans_of_next += std::isnan(of.y.value(1, i)) ? 1 : 0;
    }
    CHECK(numbers == 0);
    CHECK(nans_of_next == 0);
  }
}

TEST_CASE("softmax_backward takes rows by lanes, by blocks and in pieces") {
  for (const std::uint32_t seed : test::seeds) {
    Rows of(5, 203);  // x for y, and another for its gradient
    auto dy = test::Matrix<bf16>::random(5, 203, 207, 3);
    test::Matrix<bf16> by_lanes(5, 203, 204), by_block(5, 203, 204), in_pieces(5, 203, 204);
    const auto run = [&](unsigned blocks, unsigned threads, auto kernel, test::Matrix<bf16>& dx) {
      emulator::launch({.grid = {blocks}, .block = {threads}, .seed = seed}, [&] {
        kernel(of.x.data(), dy.data(), dx.data(), length(5), length(203), of.x.stride(), dy.stride(), dx.stride(),
               scale);
      });
    };
    run(3, 64, kiln::softmax_backward_row<bf16, 64, 32, 8, 1>, by_lanes);
    run(5, 64, kiln::softmax_backward_row<bf16, 64, 64, 4, 1>, by_block);
    run(5, 32, kiln::softmax_backward_streaming<bf16, 32, 2>, in_pieces);
    const auto right = [&](std::int64_t row, std::int64_t column) {
      double dot = 0;
      for (std::int64_t i = 0; i < 203; ++i) dot += of.x.value(row, i) * dy.value(row, i);
      return scale * of.x.value(row, column) * (dy.value(row, column) - dot);
    };
    for (auto* dx : {&by_lanes, &by_block, &in_pieces}) CHECK(test::error_of(*dx, 5, right) < 0.15);  // of about 30
  }
}

}  // namespace

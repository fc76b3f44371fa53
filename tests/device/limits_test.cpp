// Kernels at the largest sizes that ops declare: rows as long as a vocabulary, and rows whose products with a stride need 64 bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "far_rows.hpp"
#include "gemm_grouped/mma.cuh"
#include "gemm_grouped/simt.cuh"
#include "kernels.hpp"
#include "layer_norm/bulk.cuh"
#include "quantise/chunks.cuh"
#include "rms_norm/block_row.cuh"
#include "rms_norm/shared_row.cuh"
#include "rms_norm/streaming.cuh"
#include "rms_norm/warp_row.cuh"
#include "softmax/block_row.cuh"
#include "softmax/cluster_row.cuh"
#include "softmax/streaming.cuh"
#include "softmax/warp_row.cuh"
#include "softmax_backward/row.cuh"
#include "swiglu/chunks.cuh"
#include "swiglu_backward/chunks.cuh"

namespace {

using kiln::bf16;
using kiln::e4m3;
using kiln::Mask;
using kiln::quantise_mode;
using kiln::residual_mode;
using test::length;

constexpr std::int64_t vocabulary = 262208;  // Gemma 3's
constexpr float scale = 0.5f, epsilon = 1e-6f;

/// The largest distance of y from softmax, in units of its row's largest element. `logit(row, column)` is -inf for what is masked.
template <typename T, typename Logit>
double softmax_error(test::Matrix<T>& y, Logit logit) {
  double largest = y.margins_untouched() ? 0 : INFINITY;
  for (std::int64_t row = 0; row < y.rows(); ++row) {
    double sum = 0, most = 0;
    for (std::int64_t i = 0; i < y.columns(); ++i) {
      sum += std::exp(logit(row, i));
      most = std::max(most, std::exp(logit(row, i)));
    }
    for (std::int64_t i = 0; i < y.columns(); ++i)
      largest = std::max(largest, test::distance(y.value(row, i) * sum, std::exp(logit(row, i))) / most);
  }
  return largest;
}

template <typename T>
struct Logits {
  test::Matrix<T> x = test::Matrix<T>::random(2, vocabulary, vocabulary + 3, 1), y{2, vocabulary, vocabulary + 5};
  test::Matrix<T> bias = test::Matrix<T>::random(1, vocabulary, vocabulary, 2);
  std::vector<unsigned char> keep = std::vector<unsigned char>(vocabulary);

  Logits() {
    for (std::size_t i = 0; i < keep.size(); ++i) keep[i] = i % 3 != 0;
  }
  template <Mask mask>
  double error() {
    return softmax_error(y, [this](std::int64_t row, std::int64_t i) {
      if (mask == Mask::causal && i >= vocabulary - 1 + row) return -INFINITY * 1.0;
      if (mask == Mask::boolean && keep[static_cast<std::size_t>(i)] == 0) return -INFINITY * 1.0;
      return scale * x.value(row, i) + (mask == Mask::additive ? bias.value(0, i) : 0);
    });
  }
  template <Mask mask, int Threads, int N>
  double streamed(std::uint32_t seed) {
    emulator::launch({.grid = {2}, .block = {Threads}, .seed = seed}, [&] {
      kiln::softmax_streaming<T, Threads, N, mask>(x.data(), bias.data(), keep.data(), y.data(), length(2),
                                                   length(vocabulary), x.stride(), y.stride(), vocabulary, 1, 2, scale);
    });
    return error<mask>();
  }
};

TEST_CASE("softmax's streaming takes rows as long as a vocabulary, under each mask") {
  for (const std::uint32_t seed : {0u, 1u}) {
    Logits<bf16> narrow;
    CHECK(narrow.streamed<Mask::none, 256, 8>(seed) < 4e-3);
    CHECK(narrow.streamed<Mask::causal, 256, 8>(seed) < 4e-3);
    CHECK(narrow.streamed<Mask::additive, 128, 2>(seed) < 4e-3);
    CHECK(narrow.streamed<Mask::boolean, 256, 8>(seed) < 4e-3);
    Logits<float> wide;
    CHECK(wide.streamed<Mask::none, 128, 1>(seed) < 2e-6);
  }
}

TEST_CASE("softmax's cluster_row shares a row as long as a vocabulary among eight blocks") {
  for (const std::uint32_t seed : {0u, 1u}) {
    Logits<bf16> of;
    emulator::launch({.grid = {16}, .block = {256}, .shared_bytes = 131072, .cluster = {8}, .seed = seed}, [&] {
      kiln::softmax_cluster_row<bf16, 8, 256, 4, 8, Mask::causal>(
          of.x.data(), of.y.data(), length(2), length(vocabulary), of.x.stride(), of.y.stride(), 2, scale);
    });
    CHECK(of.error<Mask::causal>() < 4e-3);
  }
}

TEST_CASE("softmax_backward's streaming takes rows as long as a vocabulary") {
  for (const std::uint32_t seed : {0u, 1u}) {
    auto y = test::Matrix<float>::random(2, vocabulary, vocabulary + 3, 1),
         dy = test::Matrix<float>::random(2, vocabulary, vocabulary + 1, 2);
    test::Matrix<float> dx(2, vocabulary, vocabulary + 5);
    emulator::launch({.grid = {2}, .block = {256}, .seed = seed}, [&] {
      kiln::softmax_backward_streaming<float, 256, 4>(y.data(), dy.data(), dx.data(), length(2), length(vocabulary),
                                                      y.stride(), dy.stride(), dx.stride(), scale);
    });
    double dots[2] = {};
    for (std::int64_t row = 0; row < 2; ++row)
      for (std::int64_t i = 0; i < vocabulary; ++i) dots[row] += y.value(row, i) * dy.value(row, i);
    CHECK(test::error_of(dx, 2, [&](std::int64_t row, std::int64_t i) {
            return scale * y.value(row, i) * (dy.value(row, i) - dots[row]);
          }) <= 1e-6 * std::max(std::fabs(dots[0]), std::fabs(dots[1])));
  }
}

/// Rows of three inputs and two outputs, all as far apart.
struct Strided {
  static constexpr std::int64_t columns = 1024;
  test::FarRows<bf16> a, b, c, first, second;
  test::FarRows<e4m3> bytes;
  std::int64_t stride;

  explicit Strided(std::int64_t apart)
      : a(columns, apart),
        b(columns, apart),
        c(columns, apart),
        first(columns, apart),
        second(columns, apart),
        bytes(columns, apart),
        stride(apart) {
    auto values = test::Matrix<bf16>::random(9, columns, columns, 1);
    for (std::int64_t row = 0; row < 3; ++row)
      for (std::int64_t i = 0; i < columns; ++i) {
        a.at(row, i) = values.at(row, i);
        b.at(row, i) = values.at(row + 3, i);
        c.at(row, i) = values.at(row + 6, i);
      }
  }
  bool equals(Strided& other) {
    for (std::int64_t row = 0; row < 3; ++row) {
      if (std::memcmp(&first.at(row, 0), &other.first.at(row, 0), columns * sizeof(bf16)) != 0) return false;
      if (std::memcmp(&second.at(row, 0), &other.second.at(row, 0), columns * sizeof(bf16)) != 0) return false;
      if (std::memcmp(&bytes.at(row, 0), &other.bytes.at(row, 0), columns) != 0) return false;
    }
    return true;
  }
  /// Something was written to the last row.
  bool is_written() {
    std::array<unsigned char, columns * sizeof(bf16)> zeros = {};
    return std::memcmp(&first.at(2, 0), zeros.data(), columns * sizeof(bf16)) != 0 ||
           std::memcmp(&bytes.at(2, 0), zeros.data(), columns) != 0;
  }
};

/// Whether rows that end past 2^32 elements get what rows that lie together get.
template <typename Kernel>
void check_far(const emulator::Launch& launch, Kernel kernel) {
  constexpr std::int64_t apart = Strided::columns + 64;
  Strided near(apart), far((std::int64_t{1} << 31) + apart);
  for (Strided* of : {&near, &far}) emulator::launch(launch, [&] { kernel(*of); });
  CHECK(near.is_written());
  CHECK(near.equals(far));
}

TEST_CASE("softmax finds rows and rows of masks that end past 2^32 elements") {
  check_far({.grid = {1}, .block = {128}}, [](Strided& of) {
    kiln::softmax_warp_row<bf16, 128, 32, 8, 4, Mask::additive>(of.a.data(), of.b.data(), nullptr, of.first.data(),
                                                                length(3), length(of.columns), of.stride, of.stride,
                                                                of.stride, 3, 3, scale);
  });
  check_far({.grid = {3}, .block = {64}}, [](Strided& of) {
    kiln::softmax_block_row<bf16, 64, 8, 2, Mask::additive>(of.a.data(), of.b.data(), nullptr, of.first.data(),
                                                            length(3), length(of.columns), of.stride, of.stride,
                                                            of.stride, 3, 3, scale);
  });
  check_far({.grid = {3}, .block = {64}}, [](Strided& of) {
    kiln::softmax_streaming<bf16, 64, 2, Mask::boolean>(
        of.a.data(), nullptr, reinterpret_cast<unsigned char*>(of.b.data()), of.first.data(), length(3),
        length(of.columns), of.stride, of.stride, 2 * of.stride, 3, 3, scale);
  });
  check_far({.grid = {6}, .block = {64}, .shared_bytes = 1024, .cluster = {2}}, [](Strided& of) {
    kiln::softmax_cluster_row<bf16, 2, 64, 1, 1, Mask::causal>(of.a.data(), of.first.data(), length(3),
                                                               length(of.columns), of.stride, of.stride, 3, scale);
  });
}

TEST_CASE("softmax_backward finds rows that end past 2^32 elements") {
  check_far({.grid = {2}, .block = {64}}, [](Strided& of) {
    kiln::softmax_backward_row<bf16, 64, 32, 8, 4>(of.a.data(), of.b.data(), of.first.data(), length(3),
                                                   length(of.columns), of.stride, of.stride, of.stride, scale);
  });
  check_far({.grid = {3}, .block = {64}}, [](Strided& of) {
    kiln::softmax_backward_streaming<bf16, 64, 2>(of.a.data(), of.b.data(), of.first.data(), length(3),
                                                  length(of.columns), of.stride, of.stride, of.stride, scale);
  });
}

TEST_CASE("the norms find rows that end past 2^32 elements") {
  check_far({.grid = {1}, .block = {128}}, [](Strided& of) {
    kiln::rms_norm_warp_row<bf16, 128, 32, 8, 4, residual_mode::add, quantise_mode::none>(
        of.a.data(), of.b.data(), of.c.data(), nullptr, of.second.data(), of.first.data(), nullptr, nullptr, length(3),
        of.columns, of.stride, of.stride, of.stride, of.stride, 0, 0, epsilon);
  });
  check_far({.grid = {3}, .block = {64}}, [](Strided& of) {
    kiln::rms_norm_block_row<bf16, 64, 8, 2, residual_mode::add, quantise_mode::none>(
        of.a.data(), of.b.data(), of.c.data(), nullptr, of.second.data(), of.first.data(), nullptr, nullptr, length(3),
        of.columns, of.stride, of.stride, of.stride, of.stride, 0, 0, epsilon);
  });
  check_far({.grid = {3}, .block = {64}}, [](Strided& of) {
    kiln::rms_norm_streaming<bf16, 64, 2, residual_mode::add, quantise_mode::none>(
        of.a.data(), of.b.data(), of.c.data(), nullptr, of.second.data(), of.first.data(), nullptr, nullptr, length(3),
        of.columns, of.stride, of.stride, of.stride, of.stride, 0, 0, epsilon);
  });
  check_far({.grid = {3}, .block = {64}, .shared_bytes = 2048}, [](Strided& of) {
    kiln::rms_norm_shared_row<bf16, 64>(of.a.data(), of.c.data(), of.first.data(), length(3), of.columns, of.stride,
                                        of.stride, epsilon);
  });
  check_far({.grid = {2}, .block = {64}, .shared_bytes = 4096}, [](Strided& of) {
    kiln::layer_norm_bulk<bf16, 64, 8, 2, 2, 1, quantise_mode::none>(of.a.data(), of.c.data(), nullptr, nullptr,
                                                                     of.first.data(), nullptr, nullptr, length(3),
                                                                     of.stride, of.stride, 0, 0, epsilon);
  });
}

TEST_CASE("swiglu, its gradient and quantise find rows that end past 2^32 elements") {
  check_far({.grid = {3}, .block = {128}}, [](Strided& of) {
    kiln::swiglu_chunks<bf16, quantise_mode::none, 128, 128, 8, 1>(of.a.data(), of.b.data(), of.first.data(), nullptr,
                                                                   nullptr, nullptr, length(3), of.columns, of.stride,
                                                                   of.stride, of.stride, 0, 0);
  });
  check_far({.grid = {3}, .block = {128}}, [](Strided& of) {
    kiln::swiglu_backward_chunks<bf16, 128, 128, 8, 1>(of.a.data(), of.b.data(), of.c.data(), of.first.data(),
                                                       of.second.data(), length(3), of.columns, of.stride, of.stride,
                                                       of.stride, of.stride, of.stride);
  });
  check_far({.grid = {3}, .block = {128}}, [](Strided& of) {
    const float one = 1;
    kiln::quantise_chunks<bf16, kiln::Scaling::tensor, 128, 128, 8, 1>(
        of.a.data(), of.bytes.data(), &one, nullptr, length(3), of.columns, of.stride, of.stride, 0, 0);
  });
}

TEST_CASE("gemm_grouped finds rows of groups that end past 2^32 elements") {
  using namespace kiln::gemm;
  using Added = Ending<bf16, Activation::none, Residual::add, Scaling::none, Accumulate::no>;
  constexpr std::int64_t n = 64, k = 64, w_step = n * k;
  const int offsets[] = {0, 1, 3};
  auto w = test::Matrix<bf16>::random(2 * n, k, k, 7);
  check_far({.grid = {4}, .block = {128}, .shared_bytes = 3 * 96 * 32 * 2}, [&](Strided& of) {
    gemm_grouped_mma<bf16, Layout::nt, Added, 32, 64, 32, 4, 3>(
        of.a.data(), w.data(), offsets, of.first.data(), nullptr, of.b.data(), nullptr, nullptr, nullptr, length(3), n,
        k, 2, of.stride, k, of.stride, of.stride, 1, 1, w_step, n, 0, scale, 2);
  });
  check_far({.grid = {8}, .block = {256}}, [&](Strided& of) {
    gemm_grouped_simt<bf16, bf16, Layout::nt, Added, 32, 32, 1>(
        of.a.data(), w.data(), offsets, of.first.data(), nullptr, of.b.data(), nullptr, nullptr, nullptr, length(3), n,
        k, 2, of.stride, k, of.stride, of.stride, 1, 1, 1, 1, w_step, n, 0, scale);
  });
}

}  // namespace

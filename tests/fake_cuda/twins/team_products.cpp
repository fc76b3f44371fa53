// templates/gemm_all_reduce, gemm_reduce_scatter and all_gather_gemm: products by mma.sync before or after a collective; and references of
// sums over ranks.
#include "twins/elements.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

struct PartProduct {
  CUdeviceptr x, w, y;
  std::int64_t m, n, k;
};

void multiply(const Invocation& call, const PartProduct& of) {
  if (of.m == 0) return;
  with_element(call.type_argument(0), [&](auto element) {
    using T = decltype(element);
    const T *x = call.at<T>(of.x, of.m * of.k), *w = call.at<T>(of.w, of.n * of.k);
    T* y = call.at<T>(of.y, of.m * of.n);
    for (std::int64_t row = 0; row < of.m; ++row)
      for (std::int64_t column = 0; column < of.n; ++column) {
        double sum = 0;
        for (std::int64_t i = 0; i < of.k; ++i) sum += to_double(x[row * of.k + i]) * to_double(w[column * of.k + i]);
        y[row * of.n + column] = from_double<T>(sum);
      }
  });
}

CUdeviceptr moved(const Invocation& call, CUdeviceptr from, std::int64_t elements) {
  return from + static_cast<CUdeviceptr>(elements * element_bytes(call.type_argument(0)));
}

/// The grid has a block for each tile of `rows` rows, of each of `planes` products.
void require_tiles(const Invocation& call, std::int64_t rows, std::int64_t n, std::int64_t planes) {
  const std::int64_t tile_m = call.template_integer(1), tile_n = call.template_integer(2);
  const std::int64_t tiles = (rows + tile_m - 1) / tile_m * ((n + tile_n - 1) / tile_n);
  require(call.geometry.grid[0] >= tiles && call.geometry.grid[1] == planes, CUDA_ERROR_LAUNCH_FAILED);
}

Traffic traffic_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {static_cast<double>(2 * (m * k + n * k + m * n)), static_cast<double>(2 * m * n * k), 0.5};
}

}  // namespace

/// gemm_all_reduce_mma<T, tile_m, tile_n, ...>(x, w, product, rows, n, k, band)
Traffic gemm_all_reduce_mma(const Invocation& call) {
  const std::int64_t rows = call.length(3), n = call.integer(4), k = call.integer(5);
  require_tiles(call, rows, n, 1);
  multiply(call, {call.value<CUdeviceptr>(0), call.value<CUdeviceptr>(1), call.value<CUdeviceptr>(2), rows, n, k});
  return traffic_of(rows, n, k);
}

/// gemm_all_reduce_reference<T>(x, w, y, rows, n, k, world)
Traffic gemm_all_reduce_reference(const Invocation& call) {
  const std::int64_t rows = call.integer(3), n = call.integer(4), k = call.integer(5), world = call.integer(6);
  with_element(call.type_argument(0), [&](auto element) {
    using T = decltype(element);
    const T *x = call.required<T>(0, world * rows * k), *w = call.required<T>(1, world * n * k);
    auto* y = call.required<float>(2, rows * n);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (std::int64_t rank = 0; rank < world; ++rank)
          for (std::int64_t i = 0; i < k; ++i)
            sum += to_double(x[(rank * rows + row) * k + i]) * to_double(w[(rank * n + column) * k + i]);
        y[row * n + column] = static_cast<float>(sum);
      }
  });
  return {};
}

/// all_reduce_reference<T>(x, y, rows, cols, world)
Traffic all_reduce_reference(const Invocation& call) {
  const std::int64_t part = call.integer(2) * call.integer(3), world = call.integer(4);
  with_element(call.type_argument(0), [&](auto element) {
    using T = decltype(element);
    const T* x = call.required<T>(0, world * part);
    auto* y = call.required<float>(1, part);
    for (std::int64_t i = 0; i < part; ++i) {
      double sum = 0;
      for (std::int64_t rank = 0; rank < world; ++rank) sum += to_double(x[rank * part + i]);
      y[i] = static_cast<float>(sum);
    }
  });
  return {};
}

/// gemm_reduce_scatter_mma<T, tile_m, tile_n, ...>(x, w, products, counts, rows, n, k, part_stride, rank, most_rows, band), without counts.
Traffic gemm_reduce_scatter_mma(const Invocation& call) {
  require(call.value<CUdeviceptr>(3) == 0, CUDA_ERROR_LAUNCH_FAILED);
  const std::int64_t rows = call.length(4), n = call.integer(5), k = call.integer(6), world = call.geometry.grid[1];
  require_tiles(call, rows, n, world);
  for (std::int64_t part = 0; part < world; ++part)
    multiply(call, {moved(call, call.value<CUdeviceptr>(0), part * call.integer(7) * k), call.value<CUdeviceptr>(1),
                    moved(call, call.value<CUdeviceptr>(2), part * call.value<int>(9) * n), rows, n, k});
  return traffic_of(world * rows, n, k);
}

/// all_gather_gemm_mma<T, tile_m, tile_n, ...>(gathered, parts, w, y, counts, rows, n, k, rank_stride, rank, most_rows, band), without counts.
Traffic all_gather_gemm_mma(const Invocation& call) {
  require(call.value<CUdeviceptr>(4) == 0, CUDA_ERROR_LAUNCH_FAILED);
  const std::int64_t rows = call.length(5), n = call.integer(6), k = call.integer(7), world = call.geometry.grid[1];
  require_tiles(call, rows, n, world);
  const auto gathered = call.value<CUdeviceptr>(0);
  const std::int64_t stride = gathered != 0 ? call.integer(8) : call.value<int>(10);
  for (std::int64_t rank = 0; rank < world; ++rank)
    multiply(call, {moved(call, gathered != 0 ? gathered : call.value<CUdeviceptr>(1), rank * stride * k),
                    call.value<CUdeviceptr>(2), moved(call, call.value<CUdeviceptr>(3), rank * call.integer(8) * n),
                    rows, n, k});
  return traffic_of(world * rows, n, k);
}

}  // namespace fake_cuda

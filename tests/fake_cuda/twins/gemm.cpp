// templates/gemm: y = activation(op(x) op(w) + bias), whole or in partial sums over k.
#include <algorithm>
#include <cmath>
#include <vector>

#include "twins/elements.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

enum Layout { nt, nn, tn, tt };
enum Activation { none, relu, gelu, silu };

double activate(std::int64_t activation, double value) {
  switch (activation) {
    case relu: return value < 0 ? 0 : value;
    case gelu: return 0.5 * value * std::erfc(-value * M_SQRT1_2);
    case silu: return value / (1 + std::exp(-value));
    default: return value;
  }
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Elements from the first of a matrix to its last.
std::int64_t extent(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return rows == 0 || columns == 0 ? 0 : (rows - 1) * stride + columns;
}

/// An operand as doubles, [outer, k] whichever way it lies in memory.
struct Operand {
  std::int64_t outer, k;
  std::vector<double> values;

  template <typename T>
  static Operand read(const Invocation& call, std::size_t parameter, std::int64_t outer, std::int64_t k,
                      std::int64_t stride, bool along_k) {
    const std::int64_t rows = along_k ? outer : k, columns = along_k ? k : outer;
    const T* from = call.required<T>(parameter, extent(rows, columns, stride));
    Operand operand{outer, k, std::vector<double>(static_cast<std::size_t>(outer * k))};
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t to = along_k ? row * k + column : column * k + row;
        operand.values[static_cast<std::size_t>(to)] = to_double(from[row * stride + column]);
      }
    }
    return operand;
  }
  [[nodiscard]] const double* row(std::int64_t i) const { return values.data() + i * k; }
};

/// The sizes that gemm's kernels have in common, and both operands. `rows`: m. `first`: the parameter that holds it; n, k and the
/// strides of x, w and y follow.
struct Product {
  std::int64_t m, n, k, y_stride;
  Operand x, w;

  template <typename T>
  static Product read(const Invocation& call, std::int64_t rows, std::size_t first) {
    const std::int64_t layout = call.template_integer(1);
    const std::int64_t m = rows, n = call.integer(first + 1), k = call.integer(first + 2);
    return {m,
            n,
            k,
            call.integer(first + 5),
            Operand::read<T>(call, 0, m, k, call.integer(first + 3), layout == nt || layout == nn),
            Operand::read<T>(call, 1, n, k, call.integer(first + 4), layout == nt || layout == tt)};
  }
  [[nodiscard]] double sum(std::int64_t row, std::int64_t column, std::int64_t first_k, std::int64_t last_k) const {
    double total = 0;
    for (std::int64_t i = first_k; i < last_k; ++i) total += x.row(row)[i] * w.row(column)[i];
    return total;
  }
};

template <typename T, typename Out>
void write_whole(const Invocation& call, const Product& product) {
  const T* bias = call.device<T>(2, product.n);
  Out* y = call.required<Out>(3, extent(product.m, product.n, product.y_stride));
  for (std::int64_t row = 0; row < product.m; ++row) {
    for (std::int64_t column = 0; column < product.n; ++column) {
      const double shift = bias == nullptr ? 0 : to_double(bias[column]);
      y[row * product.y_stride + column] =
          from_double<Out>(activate(call.template_integer(2), product.sum(row, column, 0, product.k) + shift));
    }
  }
}

void write_partial(const Invocation& call, const Product& product, std::int64_t splits, std::int64_t k_a_split) {
  const std::int64_t stride = ceil_div(product.n, 8) * 8;
  auto* partial = call.required<float>(4, splits * product.m * stride);
  for (std::int64_t split = 0; split < splits; ++split) {
    const std::int64_t first = std::min(split * k_a_split, product.k), last = std::min(first + k_a_split, product.k);
    for (std::int64_t row = 0; row < product.m; ++row) {
      for (std::int64_t column = 0; column < product.n; ++column) {
        partial[(split * product.m + row) * stride + column] =
            static_cast<float>(product.sum(row, column, first, last));
      }
    }
  }
}

/// How much of the device is busy, by whole waves of tiles, and how well a tile of that size reuses what it loads.
double tile_efficiency(const Invocation& call, std::int64_t tile_m, std::int64_t tile_n, double peak) {
  const double blocks = static_cast<double>(call.geometry.blocks()),
               seats = static_cast<double>(call.settings.multiprocessors);
  const double busy = blocks / (std::ceil(blocks / seats) * seats);
  const double reuse =
      static_cast<double>(tile_m * tile_n) / static_cast<double>(tile_m + tile_n) / 64;  // 1 for 128 x 128
  return std::clamp(peak * busy * std::min(reuse, 1.0), 1e-4, 1.0);
}

Traffic traffic(const Product& product, std::int64_t element, double efficiency) {
  const double m = static_cast<double>(product.m), n = static_cast<double>(product.n),
               k = static_cast<double>(product.k);
  return {(m * k + n * k + m * n) * static_cast<double>(element), 2 * m * n * k, efficiency};
}

void require_aligned(const Invocation& call, std::size_t parameter, std::int64_t bytes) {
  require(call.value<CUdeviceptr>(parameter) % static_cast<CUdeviceptr>(bytes) == 0, CUDA_ERROR_MISALIGNED_ADDRESS);
}

}  // namespace

// gemm_reference<T, layout, activation>(x, w, bias, float* y, m, n, k, strides)
Traffic gemm_reference(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const Product product = Product::read<T>(call, call.integer(4), 4);
    require(call.geometry.grid[0] == ceil_div(product.n, 32), CUDA_ERROR_LAUNCH_FAILED);
    write_whole<T, float>(call, product);
    return traffic(product, sizeof(T), 0.01);
  });
}

// gemm_simt<T, layout, activation, tile_m, tile_n, vector>(x, w, bias, y, length of m, n, k, strides)
Traffic gemm_simt(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const Product product = Product::read<T>(call, call.length(4), 4);
    const std::int64_t tile_m = call.template_integer(3), tile_n = call.template_integer(4),
                       vector = call.template_integer(5);
    require(call.geometry.grid[0] >= ceil_div(product.m, tile_m) * ceil_div(product.n, tile_n),
            CUDA_ERROR_LAUNCH_FAILED);
    for (const std::size_t operand : {0, 1}) {
      require_aligned(call, operand, vector * static_cast<std::int64_t>(sizeof(T)));
      require(call.integer(7 + operand) % vector == 0, CUDA_ERROR_MISALIGNED_ADDRESS);
    }
    write_whole<T, T>(call, product);
    return traffic(product, sizeof(T), tile_efficiency(call, tile_m, tile_n, vector == 1 ? 0.08 : 0.1));
  });
}

// gemm_mma<T, layout, activation, tile_m, tile_n, tile_k, warps, stages, split>(x, w, bias, y, float* partial, length of m, n, k, strides,
// int group, int splits)
Traffic gemm_mma(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const std::int64_t tile_m = call.template_integer(3), tile_n = call.template_integer(4),
                       tile_k = call.template_integer(5);
    const std::int64_t element = sizeof(T), splits = call.value<int>(12);
    const Product product = Product::read<T>(call, call.length(5), 5);
    require(call.geometry.grid[0] >= ceil_div(product.m, tile_m) * ceil_div(product.n, tile_n) &&
                call.geometry.grid[1] == splits,
            CUDA_ERROR_LAUNCH_FAILED);
    require(call.geometry.dynamic_shared >= call.template_integer(7) * (tile_m + tile_n) * tile_k * element,
            CUDA_ERROR_ILLEGAL_ADDRESS);
    for (const std::size_t tensor : {0, 1, 3}) require_aligned(call, tensor, 16);
    for (const std::size_t stride : {8, 9, 10})
      require(call.integer(stride) * element % 16 == 0, CUDA_ERROR_MISALIGNED_ADDRESS);
    if (call.template_integer(8) != 0) {
      write_partial(call, product, splits, ceil_div(ceil_div(product.k, tile_k), splits) * tile_k);
    } else {
      write_whole<T, T>(call, product);
    }
    const double depth = std::min(1.0, 0.7 + 0.1 * static_cast<double>(call.template_integer(7) - 2));
    return traffic(product, element, tile_efficiency(call, tile_m, tile_n, depth));
  });
}

// gemm_reduce<T, activation>(const float* partial, bias, y, length of m, n, y_stride, int splits)
Traffic gemm_reduce(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const std::int64_t m = call.length(3), n = call.integer(4), y_stride = call.integer(5), splits = call.value<int>(6);
    const std::int64_t stride = ceil_div(n, 8) * 8;
    const auto* partial = call.required<float>(0, splits * m * stride);
    const T* bias = call.device<T>(1, n);
    T* y = call.required<T>(2, extent(m, n, y_stride));
    const std::int64_t rows = std::min(m, call.geometry.blocks() * 128 / ceil_div(n, 4));
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = bias == nullptr ? 0 : to_double(bias[column]);
        for (std::int64_t split = 0; split < splits; ++split)
          sum += static_cast<double>(partial[(split * m + row) * stride + column]);
        y[row * y_stride + column] = from_double<T>(activate(call.template_integer(1), sum));
      }
    }
    return Traffic{static_cast<double>(splits * m * stride) * 4, 0, 0.8};
  });
}

}  // namespace fake_cuda

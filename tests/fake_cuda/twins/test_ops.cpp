// The ops that tests and examples bring: tests/e2e/ops/scale and early_scale, tests/ops/tile_scale, tests/ops/segment_sum, tests/tune/ops/stair_scale,
// examples/ops/squared_relu.
#include <algorithm>
#include <cmath>

#include "module/tensor_map.hpp"
#include "twins/elements.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

/// Rows that blocks were launched for, up to the length that parameter i gives.
std::int64_t rows_of(const Invocation& call, std::size_t i) { return std::min(call.geometry.grid[0], call.length(i)); }

/// y = (x + bias) * factor; y is dense.
template <typename T, typename Out>
Traffic scale(const Invocation& call, std::int64_t rows, std::size_t y_parameter, std::int64_t cols,
              std::int64_t stride, float factor) {
  const T* x = call.required<T>(0, rows == 0 ? 0 : (rows - 1) * stride + cols);
  const T* bias = call.device<T>(1, cols);
  Out* y = call.required<Out>(y_parameter, rows * cols);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < cols; ++i) {
      const double shifted = to_double(x[row * stride + i]) + (bias == nullptr ? 0 : to_double(bias[i]));
      y[row * cols + i] = from_double<Out>(shifted * static_cast<double>(factor));
    }
  }
  return {static_cast<double>(2 * rows * cols) * sizeof(T), 0, 1};
}

}  // namespace

Traffic scale_reference(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    return scale<T, float>(call, call.geometry.grid[0], 2, call.integer(3), call.integer(4), call.value<float>(5));
  });
}

// Fastest with 128 threads and vectors of 4.
Traffic scale_tiled(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const std::int64_t threads = call.template_integer(1), vector = call.template_integer(2);
    const std::int64_t cols = call.integer(3), stride = call.stride(0, 0);
    const auto bytes = static_cast<CUdeviceptr>(vector) * sizeof(T);
    require(call.geometry.threads() == threads, CUDA_ERROR_LAUNCH_FAILED);
    require(call.address(0) % bytes == 0 && call.address(2) % bytes == 0 && stride % vector == 0 && cols % vector == 0,
            CUDA_ERROR_MISALIGNED_ADDRESS);
    Traffic traffic = scale<T, T>(call, rows_of(call, 5), 2, cols, stride, call.value<float>(4));
    traffic.efficiency = 0.01 / (vector == 4 ? 1 : 2) / (1 + std::abs(std::log2(static_cast<double>(threads) / 128)));
    return traffic;
  });
}

// Fastest with 128 threads.
Traffic scale_early(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    Traffic traffic = scale<T, T>(call, rows_of(call, 6), 2, call.integer(3), call.integer(4), call.value<float>(5));
    traffic.efficiency = call.template_integer(1) == 128 ? 0.01 : 0.005;
    return traffic;
  });
}

Traffic scale_copy(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const std::int64_t rows = rows_of(call, 4), cols = call.integer(2), stride = call.integer(3);
    const T* x = call.required<T>(0, rows == 0 ? 0 : (rows - 1) * stride + cols);
    T* copy = call.required<T>(1, rows * cols);
    for (std::int64_t row = 0; row < rows; ++row) std::copy_n(x + row * stride, cols, copy + row * cols);
    return Traffic{static_cast<double>(2 * rows * cols) * sizeof(T), 0, 0.002};
  });
}

Traffic scale_plain(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    Traffic traffic = scale<T, T>(call, rows_of(call, 5), 2, call.integer(3), call.integer(3), call.value<float>(4));
    traffic.efficiency = 0.002;
    return traffic;
  });
}

Traffic tile_scale_reference(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const std::int64_t rows = call.geometry.grid[0], cols = call.integer(2), stride = call.integer(3);
    const T* x = call.required<T>(0, (rows - 1) * stride + cols);
    auto* y = call.required<float>(1, rows * cols);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      y[i] = static_cast<float>(to_double(x[i / cols * stride + i % cols])) * call.value<float>(4);
    }
    return Traffic{static_cast<double>(2 * rows * cols) * sizeof(T), 0, 0.1};
  });
}

Traffic tile_scale_plain(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const std::int64_t rows = call.integer(2), cols = call.integer(3), stride = call.integer(4);
    const T* x = call.required<T>(0, (rows - 1) * stride + cols);
    T* y = call.required<T>(1, rows * cols);
    const auto factor = static_cast<double>(call.value<float>(5));
    for (std::int64_t i = 0; i < rows * cols; ++i)
      y[i] = from_double<T>(to_double(x[i / cols * stride + i % cols]) * factor);
    return Traffic{static_cast<double>(2 * rows * cols) * sizeof(T), 0, 0.1};
  });
}

/// tile_scale_tma<T, TileRows, TileCols>(tensor_map x, y, rows, cols, scale): a box of x a block.
Traffic tile_scale_tma(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const auto raw = call.value<CUtensorMap>(0);
    TensorMap map;
    std::memcpy(&map, &raw, sizeof map);
    const std::int64_t rows = call.integer(2), cols = call.integer(3);
    const auto tile_rows = static_cast<std::uint32_t>(call.template_integer(1)),
               tile_cols = static_cast<std::uint32_t>(call.template_integer(2));
    require(map.magic == tensor_map_magic && map.rank == 2 && map.box[0] == tile_cols && map.box[1] == tile_rows,
            CUDA_ERROR_LAUNCH_FAILED);
    require(call.geometry.grid[0] * tile_cols >= cols, CUDA_ERROR_LAUNCH_FAILED);
    const auto stride = static_cast<std::int64_t>(map.stride_bytes[0] / sizeof(T));
    const T* x = call.at<T>(
        map.address, (static_cast<std::int64_t>(map.shape[1]) - 1) * stride + static_cast<std::int64_t>(map.shape[0]));
    T* y = call.required<T>(1, rows * cols);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const auto row = static_cast<std::uint64_t>(i / cols), column = static_cast<std::uint64_t>(i % cols);
      const bool inside = row < map.shape[1] && column < map.shape[0];  // what is outside reads as zero
      y[i] = from_double<T>(
          inside ? to_double(x[i / cols * stride + i % cols]) * static_cast<double>(call.value<float>(4)) : 0);
    }
    return Traffic{static_cast<double>(2 * rows * cols) * sizeof(T), 0, tile_rows == 8 ? 0.2 : 0.15};
  });
}

Traffic stair_scale_reference(const Invocation& call) {
  const std::int64_t count = call.geometry.grid[0] * call.integer(2);
  const float* x = call.required<float>(0, count);
  std::transform(x, x + count, call.required<float>(1, count), [&](float each) { return each * call.value<float>(3); });
  return {static_cast<double>(2 * count) * sizeof(float), 0, 1};
}

/// Takes equally long for each tile that is begun, as the model in its manifest says.
Traffic stair_scale(const Invocation& call) {
  const std::int64_t rows = call.integer(2), count = rows * call.integer(3);
  const std::int64_t tile = call.template_integer(1);
  const float* x = call.required<float>(0, count);
  std::transform(x, x + count, call.required<float>(1, count), [&](float each) { return each * call.value<float>(4); });
  return {static_cast<double>((rows + tile - 1) / tile * (tile * 7 / 2 - 16)) * 1e6, 0, 1};
}

/// segment_offsets(offsets, rows, groups, seed, which)
Traffic segment_offsets(const Invocation& call) {
  const std::int64_t rows = call.integer(1), groups = call.integer(2);
  const auto longest =
      static_cast<std::int64_t>(call.value<unsigned long long>(3) % static_cast<std::uint64_t>(groups));
  auto* offsets = call.required<std::int32_t>(0, groups + 1);
  for (std::int64_t i = 0; i <= groups; ++i) {
    std::int64_t begin = rows * i / groups;
    switch (call.value<int>(4)) {
      case 1: begin = rows * i / groups * i / groups; break;
      case 2: begin = rows * (i / 3 * 3) / groups; break;
      case 3: begin = i <= longest ? 0 : rows; break;
      default: break;
    }
    offsets[i] = static_cast<std::int32_t>(i == groups ? rows : begin);
  }
  return {static_cast<double>(groups) * sizeof(std::int32_t), 0, 1};
}

namespace {

/// y[g] = the sum of the rows that offsets gives to group g, below `rows`. It takes as long as its longest group.
Traffic segment_sums(const Invocation& call, std::int64_t groups, std::int64_t rows, std::int64_t cols,
                     std::int64_t step) {
  const auto* offsets = call.required<std::int32_t>(1, groups + 1);
  float* y = call.required<float>(2, groups * cols);
  std::int64_t longest = 1;
  for (std::int64_t group = 0; group < groups && step > 0; group += step) {
    const std::int64_t begin = offsets[group], end = std::min<std::int64_t>(offsets[group + 1], rows);
    require(begin >= -1, CUDA_ERROR_ILLEGAL_ADDRESS);  // -1 is poison, which a verification reports
    longest = std::max(longest, end - begin);
    const float* x = call.required<float>(0, begin < end ? end * cols : 0);
    for (std::int64_t i = 0; i < cols; ++i) {
      double sum = 0;
      for (std::int64_t row = begin; row < end; ++row) sum += static_cast<double>(x[row * cols + i]);
      y[group * cols + i] = static_cast<float>(sum);
    }
  }
  return {static_cast<double>(longest * cols) * sizeof(float), 0, 1};
}

}  // namespace

Traffic segment_sum_reference(const Invocation& call) {
  return segment_sums(call, call.geometry.grid[0], INT64_MAX, call.integer(3), call.value<int>(4));
}

// Fastest with 128 threads.
Traffic segment_sum(const Invocation& call) {
  Traffic traffic =
      segment_sums(call, std::min(call.geometry.grid[0], call.length(5)), call.length(4), call.integer(3), 1);
  traffic.efficiency = call.template_integer(0) == 128 ? 1e-4 : 0.5e-4;
  return traffic;
}

/// gather_rows<T, Index>(table, positions, y, rows), of tests/faults/engine/55_mixed_trace.cpp: y[i] = table[positions[i]].
Traffic gather_rows(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    return with_element(call.type_argument(1), [&]<typename Index>(Index) {
      const std::int64_t rows = call.integer(3);
      const auto* positions = call.required<Index>(1, rows);
      T* y = call.required<T>(2, rows);
      for (std::int64_t i = 0; i < rows; ++i) {
        const auto position = static_cast<std::int64_t>(to_double(positions[i]));
        require(position >= 0 && position < rows, CUDA_ERROR_ILLEGAL_ADDRESS);
        y[i] = call.required<T>(0, rows)[position];
      }
      return Traffic{static_cast<double>(rows) * (2 * sizeof(T) + sizeof(Index)), 0, 0.1};
    });
  });
}

namespace {

double squared_relu_of(double x, float scale) {
  return x > 0 ? x * x * static_cast<double>(scale) : std::isnan(x) ? x : 0;
}

template <typename T, typename Out>
Traffic square(const Invocation& call) {
  const std::int64_t count = call.integer(2);
  const T* x = call.required<T>(0, count);
  Out* y = call.required<Out>(1, count);
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = from_double<Out>(squared_relu_of(to_double(x[i]), call.value<float>(3)));
  return {static_cast<double>(2 * count) * sizeof(T), 0, memory_efficiency(call, 16)};
}

}  // namespace

Traffic squared_relu_reference(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) { return square<T, float>(call); });
}
Traffic squared_relu(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) { return square<T, T>(call); });
}

}  // namespace fake_cuda

#include "twins/product.hpp"

#include <algorithm>
#include <cmath>

#include "twins/elements.hpp"

namespace fake_cuda {
namespace {

constexpr std::int64_t scaling_block = 128;

/// A matrix in device memory, [rows, columns] with distances in elements.
struct Place {
  CUdeviceptr address;
  std::int64_t rows, columns, stride, column_stride = 1;

  [[nodiscard]] std::int64_t extent() const {
    return rows == 0 || columns == 0 ? 0 : (rows - 1) * stride + (columns - 1) * column_stride + 1;
  }
  [[nodiscard]] std::size_t at(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * stride + column * column_stride);
  }
};

std::vector<double> read_elements(const Invocation& call, std::string_view type, const Place& place) {
  return with_element(type, [&]<typename T>(T) {
    std::vector<double> values;
    values.reserve(static_cast<std::size_t>(place.rows * place.columns));
    const T* from = call.at<T>(place.address, place.extent());
    for (std::int64_t row = 0; row < place.rows; ++row)
      for (std::int64_t column = 0; column < place.columns; ++column)
        values.push_back(to_double(from[place.at(row, column)]));
    return values;
  });
}

void write(const Invocation& call, std::string_view type, const Place& place, const std::vector<double>& values) {
  with_element(type, [&]<typename T>(T) {
    T* to = call.at<T>(place.address, place.extent());
    for (std::int64_t row = 0; row < place.rows; ++row)
      for (std::int64_t column = 0; column < place.columns; ++column)
        to[place.at(row, column)] = from_double<T>(values[static_cast<std::size_t>(row * place.columns + column)]);
    return 0;
  });
}

double read_one(const Invocation& call, CUdeviceptr address) {
  return read_elements(call, "float", {address, 1, 1, 1})[0];
}

/// What Out holds of a value.
double rounded(std::string_view out, double value) {
  return with_element(out, [&]<typename T>(T) { return to_double(from_double<T>(value)); });
}

/// An operand as [outer, k], whichever way it lies, times the scales of its blocks, which are of `outer_a_scale` by 128.
std::vector<double> read_operand(const Invocation& call, std::string_view type, CUdeviceptr address, std::int64_t outer,
                                 std::int64_t k, std::int64_t stride, bool along_k) {
  return read_elements(call, type, along_k ? Place{address, outer, k, stride} : Place{address, outer, k, 1, stride});
}

void scale_blocks(const Invocation& call, std::vector<double>& values, std::int64_t outer, std::int64_t k,
                  std::int64_t outer_a_scale, Place scales) {
  scales.rows = ceil_div(outer, outer_a_scale), scales.columns = ceil_div(k, scaling_block);
  const std::vector<double> factors = read_elements(call, "float", scales);
  for (std::int64_t row = 0; row < outer; ++row)
    for (std::int64_t column = 0; column < k; ++column)
      values[static_cast<std::size_t>(row * k + column)] *=
          factors[static_cast<std::size_t>(row / outer_a_scale * scales.columns + column / scaling_block)];
}

double activate(std::int64_t activation, double value) {
  switch (activation) {
    case relu: return value < 0 ? 0 : value;
    case gelu: return 0.5 * value * std::erfc(-value * M_SQRT1_2);
    case silu: return value / (1 + std::exp(-value));
    default: return value;
  }
}

/// The scale of each of `count` rows, or columns.
std::vector<double> side_scales(const Invocation& call, std::int64_t scaling, CUdeviceptr address, std::int64_t count,
                                std::int64_t stride) {
  std::vector<double> factors(static_cast<std::size_t>(count), 1.0);
  if (scaling == by_tensor) std::ranges::fill(factors, read_one(call, address));
  if (scaling == by_row) factors = read_elements(call, "float", {address, count, 1, stride});
  return factors;
}

}  // namespace

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Ending Ending::read(const Invocation& call, std::size_t argument) {
  std::string_view text = call.type_argument(argument);
  text.remove_prefix(std::min(text.size(), text.find('<') + 1));
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(",>"), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(",> ", end)));
  }
  require(parts.size() == 5, CUDA_ERROR_LAUNCH_FAILED);
  const auto number = [&](std::size_t i) { return std::int64_t{parts[i].back() - '0'}; };
  return {std::string(parts[0]), number(1), number(2), number(3), number(4)};
}

void Product::read_addresses(const Invocation& call, std::size_t first, bool operands) {
  if (operands) {
    x = call.value<CUdeviceptr>(first++);
    w = call.value<CUdeviceptr>(first++);
  }
  for (CUdeviceptr* each : {&y, &bias, &residual, &x_scale, &w_scale, &y_scale})
    *each = call.value<CUdeviceptr>(first++);
}

std::size_t Product::read_sizes(const Invocation& call, std::size_t first, bool block_scales) {
  for (std::int64_t* each : {&n, &k}) *each = call.integer(first++);
  return read_strides(call, first, block_scales);
}

std::size_t Product::read_strides(const Invocation& call, std::size_t first, bool block_scales) {
  for (std::int64_t* each : {&x_stride, &w_stride, &y_stride, &residual_stride, &x_scale_stride, &w_scale_stride})
    *each = call.integer(first++);
  if (block_scales)
    for (std::int64_t* each : {&x_scale_k_stride, &w_scale_k_stride}) *each = call.integer(first++);
  return first;
}

std::size_t Product::read_scale(const Invocation& call, std::size_t at) {
  scale = static_cast<double>(call.value<float>(at));
  return at + 1;
}

std::vector<double> Product::sums(const Invocation& call, std::int64_t first_k, std::int64_t last_k) const {
  std::vector<double> rows = read_operand(call, x_type, x, m, k, x_stride, layout == nt || layout == nn);
  std::vector<double> columns = read_operand(call, w_type, w, n, k, w_stride, layout == nt || layout == tt);
  if (ending.scaling == by_block) {
    scale_blocks(call, rows, m, k, 1, {x_scale, 0, 0, x_scale_stride, x_scale_k_stride});
    scale_blocks(call, columns, n, k, scaling_block, {w_scale, 0, 0, w_scale_stride, w_scale_k_stride});
  }
  std::vector<double> all;
  all.reserve(static_cast<std::size_t>(m * n));
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      const double *a = rows.data() + row * k, *b = columns.data() + column * k;
      double total = 0;
      for (std::int64_t i = first_k; i < last_k; ++i) total += a[i] * b[i];
      all.push_back(total);
    }
  }
  return all;
}

void Product::finish(const Invocation& call, const std::vector<double>& sums, std::string_view y_type) const {
  const std::int64_t width = n / ending.joined();
  const Place to{y, m, width, y_stride};
  const double unit = ending.out == "kiln::e4m3" && y_scale != 0 ? read_one(call, y_scale) : 1;
  const auto row_factors = side_scales(call, ending.scaling, x_scale, m, x_scale_stride);
  const auto column_factors = side_scales(call, ending.scaling, w_scale, n, w_scale_stride);
  const auto shifts =
      bias == 0 ? std::vector<double>(static_cast<std::size_t>(n)) : read_elements(call, ending.out, {bias, n, 1, 1});
  const auto z = [&](std::int64_t row, std::int64_t column) {
    const auto c = static_cast<std::size_t>(column);
    return scale * row_factors[static_cast<std::size_t>(row)] * column_factors[c] *
               sums[static_cast<std::size_t>(row * n + column)] +
           shifts[c];
  };
  std::vector<double> added(static_cast<std::size_t>(m * width)), held = added, results;
  if (ending.residual != 0) added = read_elements(call, ending.out, {residual, m, width, residual_stride});
  if (ending.accumulate != 0) held = read_elements(call, y_type, to);
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      const std::size_t at = results.size();
      const double active = ending.activation == swiglu ? activate(silu, z(row, 2 * column)) * z(row, 2 * column + 1)
                                                        : activate(ending.activation, z(row, column));
      double value = (active + added[at] + rounded(ending.out, held[at]) * unit) / unit;
      if (ending.out == "kiln::e4m3" && std::abs(value) > 448) value = std::copysign(448, value);
      results.push_back(value);
    }
  }
  write(call, y_type, to, results);
}

void Product::write_partial(const Invocation& call, CUdeviceptr to, std::int64_t splits, std::int64_t k_a_split) const {
  const std::int64_t stride = ceil_div(n, 8) * 8;
  auto* partial = call.at<float>(to, splits * m * stride);
  for (std::int64_t split = 0; split < splits; ++split) {
    const std::int64_t first = std::min(split * k_a_split, k), last = std::min(first + k_a_split, k);
    const std::vector<double> parts = sums(call, first, last);
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t column = 0; column < n; ++column)
        partial[(split * m + row) * stride + column] =
            static_cast<float>(parts[static_cast<std::size_t>(row * n + column)]);
  }
}

Traffic Product::traffic(double efficiency) const {
  const double rows = static_cast<double>(m), columns = static_cast<double>(n), depth = static_cast<double>(k);
  return {rows * depth * static_cast<double>(element_bytes(x_type)) +
              columns * depth * static_cast<double>(element_bytes(w_type)) +
              rows * columns * static_cast<double>(element_bytes(ending.out)),
          2 * rows * columns * depth, efficiency};
}

void Product::require_aligned_rows() const {
  constexpr std::int64_t bytes = 16;
  const auto check = [](CUdeviceptr address, std::int64_t stride, std::string_view type) {
    require(address % bytes == 0 && stride * element_bytes(type) % bytes == 0, CUDA_ERROR_MISALIGNED_ADDRESS);
  };
  check(x, x_stride, x_type);
  check(w, w_stride, w_type);
  check(y, y_stride, ending.out);
  if (ending.residual != 0) check(residual, residual_stride, ending.out);
}

double tile_efficiency(const Invocation& call, std::int64_t tile_m, std::int64_t tile_n, double peak) {
  const double blocks = static_cast<double>(call.geometry.blocks()),
               seats = static_cast<double>(call.settings.multiprocessors);
  const double busy = blocks / (std::ceil(blocks / seats) * seats);
  const double reuse =
      static_cast<double>(tile_m * tile_n) / static_cast<double>(tile_m + tile_n) / 64;  // 1 for 128 x 128
  return std::clamp(peak * busy * std::min(reuse, 1.0), 1e-4, 1.0);
}

double stream_efficiency(const Invocation& call, const Product& product, std::int64_t tiles_m) {
  const std::int64_t rows_of_x = call.template_integer(3), warp_rows = call.template_integer(4),
                     warps_n = call.template_integer(5), warps = warps_n * call.template_integer(6),
                     blocks = call.template_integer(8), alignment = call.template_integer(9);
  require(call.geometry.grid[0] >= tiles_m * ceil_div(product.n, warps_n * warp_rows) * blocks &&
              call.geometry.cluster == blocks && call.geometry.block[0] == warps * 32,
          CUDA_ERROR_LAUNCH_FAILED);
  const std::int64_t rings = warps * call.template_integer(7) * (warp_rows + rows_of_x) * 128;
  require(call.geometry.dynamic_shared >= rings, CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto require_multiples = [](CUdeviceptr address, std::int64_t stride, std::string_view type, std::int64_t of) {
    require(address % static_cast<CUdeviceptr>(of) == 0 && stride * element_bytes(type) % of == 0,
            CUDA_ERROR_MISALIGNED_ADDRESS);
  };
  require_multiples(product.x, product.x_stride, product.x_type, 16);
  require_multiples(product.w, product.w_stride, product.w_type, 16);
  const std::string& out = product.ending.out;
  if (product.ending.joined() == 1) require_multiples(product.y, product.y_stride, out, alignment * element_bytes(out));
  const double in_flight = static_cast<double>(call.geometry.blocks() * rings);
  return std::clamp(in_flight / (65536.0 * static_cast<double>(call.settings.multiprocessors)), 1e-4, 0.9);
}

void require_reference(const Invocation& call, std::int64_t n) {
  const bool is_whole = call.geometry.grid[0] == ceil_div(n, 64);
  require(is_whole && call.geometry.block == std::array<std::int64_t, 3>{16, 16, 1}, CUDA_ERROR_LAUNCH_FAILED);
}

}  // namespace fake_cuda

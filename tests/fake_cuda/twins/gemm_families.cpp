// templates/gemm_batched and templates/gemm_grouped: many products in one launch.
#include <algorithm>
#include <array>

#include "twins/elements.hpp"
#include "twins/product.hpp"
#include "twins/tensor_operand.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

void move(CUdeviceptr& address, std::int64_t elements, std::string_view type) {
  if (address != 0) address += static_cast<CUdeviceptr>(elements * element_bytes(type));
}

Product typed(const Invocation& call, bool one_type) {
  Product product;
  const std::size_t layout = one_type ? 1 : 2;
  product.x_type = call.type_argument(0);
  product.w_type = call.type_argument(layout - 1);
  product.layout = call.template_integer(layout);
  product.ending = Ending::read(call, layout + 1);
  return product;
}

/// What a kernel of one tile a block needs of its launch; `tiles` is the most that there may be.
void require_tiles(const Invocation& call, std::int64_t tiles) {
  require(call.geometry.grid[0] >= tiles, CUDA_ERROR_LAUNCH_FAILED);
}

void require_ring(const Invocation& call, const Product& product) {
  const std::int64_t tile_m = call.template_integer(3), tile_n = call.template_integer(4),
                     tile_k = call.template_integer(5), stages = call.template_integer(7);
  require(call.geometry.dynamic_shared >= stages * (tile_m + tile_n) * tile_k * element_bytes(product.x_type),
          CUDA_ERROR_ILLEGAL_ADDRESS);
}

Traffic whole(const Product& product, double products, double efficiency) {
  Traffic traffic = product.traffic(efficiency);
  traffic.bytes *= products;
  traffic.flops *= products;
  return traffic;
}

/// From one product's tensors to the next one's: x, w, y, bias, residual and the scales of x and w.
using BatchStrides = std::array<std::int64_t, 7>;

Traffic multiply_batch(const Invocation& call, const Product& product, const BatchStrides& strides,
                       std::int64_t products, std::string_view y_type, double efficiency) {
  for (std::int64_t i = 0; i < products; ++i) {
    Product own = product;
    move(own.x, i * strides[0], product.x_type);
    move(own.w, i * strides[1], product.w_type);
    move(own.y, i * strides[2], y_type);
    move(own.bias, i * strides[3], product.ending.out);
    move(own.residual, i * strides[4], product.ending.out);
    move(own.x_scale, i * strides[5], "float");
    move(own.w_scale, i * strides[6], "float");
    if (call.name.base == "gemm_batched_mma") own.require_aligned_rows();
    own.run(call, y_type);
  }
  return whole(product, static_cast<double>(products), efficiency);
}

/// All products of a batch. `first`: the parameter of n; the distances between products follow those of one.
Traffic run_batch(const Invocation& call, Product product, std::size_t first, std::int64_t products, bool block_scales,
                  std::string_view y_type, double efficiency) {
  std::size_t at = product.read_sizes(call, first, block_scales);
  BatchStrides strides{};
  for (std::int64_t& each : strides) each = call.integer(at++);
  product.read_scale(call, at);
  return multiply_batch(call, product, strides, products, y_type, efficiency);
}

/// From one group's w, bias and scales to the next one's.
struct GroupStrides {
  std::int64_t w, bias, w_scale;
};

/// All groups' products; `offsets` is the parameter of the rows at which groups begin.
Traffic multiply_groups(const Invocation& call, Product product, std::size_t offsets_at, std::int64_t groups,
                        const GroupStrides& strides, std::int64_t m, std::string_view y_type, double efficiency) {
  const int* offsets = call.required<int>(offsets_at, groups + 1);
  const auto bounded = [&](std::int64_t i) { return std::clamp<std::int64_t>(offsets[i], 0, m); };
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int64_t begin = bounded(i);
    Product own = product;
    own.m = std::max<std::int64_t>(bounded(i + 1) - begin, 0);
    if (own.m == 0) continue;
    move(own.x, begin * product.x_stride, product.x_type);
    move(own.y, begin * product.y_stride, y_type);
    move(own.residual, begin * product.residual_stride, product.ending.out);
    if (product.ending.scaling != by_tensor) move(own.x_scale, begin * product.x_scale_stride, "float");
    move(own.w, i * strides.w, product.w_type);
    move(own.bias, i * strides.bias, product.ending.out);
    move(own.w_scale, i * strides.w_scale, "float");
    if (call.name.base == "gemm_grouped_mma") own.require_aligned_rows();
    own.run(call, y_type);
  }
  product.m = m;
  return product.traffic(efficiency);
}

/// The same for a kernel with x, w and the offsets as its first parameters. `first`: the parameter of n; the number of groups follows k.
Traffic run_groups(const Invocation& call, Product product, std::size_t first, std::int64_t m, bool block_scales,
                   std::string_view y_type, double efficiency) {
  const bool is_reference = call.name.base == "gemm_grouped_reference";
  product.n = call.integer(first);
  product.k = call.integer(first + 1);
  const std::int64_t groups = is_reference ? call.integer(first + 2) : call.value<int>(first + 2);
  const std::size_t at = product.read_strides(call, first + 3, block_scales);
  product.read_scale(call, at + 3);
  return multiply_groups(call, product, 2, groups, {call.integer(at), call.integer(at + 1), call.integer(at + 2)}, m,
                         y_type, efficiency);
}

/// x, w and the offsets, then what the other kernels have after x and w.
void read_grouped_addresses(const Invocation& call, Product& product) {
  product.x = call.value<CUdeviceptr>(0);
  product.w = call.value<CUdeviceptr>(1);
  product.read_addresses(call, 3, false);
}

}  // namespace

Traffic gemm_batched_reference(const Invocation& call) {
  Product product = typed(call, false);
  product.read_addresses(call, 0);
  product.m = call.integer(8);
  require_reference(call, call.integer(9));
  return run_batch(call, product, 9, call.geometry.grid[2], true, "float", 0.01);
}

Traffic gemm_batched_simt(const Invocation& call) {
  Product product = typed(call, false);
  product.read_addresses(call, 0);
  product.m = call.length(8);
  const std::int64_t tile_m = call.template_integer(4), tile_n = call.template_integer(5);
  require_tiles(call, ceil_div(product.m, tile_m) * ceil_div(call.integer(9), tile_n));
  return run_batch(call, product, 9, call.geometry.grid[1], true, product.ending.out,
                   tile_efficiency(call, tile_m, tile_n, 0.08));
}

Traffic gemm_batched_mma(const Invocation& call) {
  Product product = typed(call, true);
  product.read_addresses(call, 0);
  product.m = call.length(8);
  const std::int64_t tile_m = call.template_integer(3), tile_n = call.template_integer(4);
  require_tiles(call, ceil_div(product.m, tile_m) * ceil_div(call.integer(9), tile_n));
  require_ring(call, product);
  return run_batch(call, product, 9, call.geometry.grid[1], false, product.ending.out,
                   tile_efficiency(call, tile_m, tile_n, 0.9));
}

Traffic gemm_grouped_reference(const Invocation& call) {
  Product product = typed(call, false);
  read_grouped_addresses(call, product);
  require_reference(call, call.integer(9));
  const std::int64_t groups = call.integer(11);
  return run_groups(call, product, 9, call.required<int>(2, groups + 1)[groups], true, "float", 0.01);
}

Traffic gemm_grouped_simt(const Invocation& call) {
  Product product = typed(call, false);
  read_grouped_addresses(call, product);
  const std::int64_t tile_m = call.template_integer(4), tile_n = call.template_integer(5), m = call.length(9);
  require_tiles(call, ceil_div(m, tile_m) * ceil_div(call.integer(10), tile_n));
  return run_groups(call, product, 10, m, true, product.ending.out, tile_efficiency(call, tile_m, tile_n, 0.08));
}

Traffic gemm_grouped_mma(const Invocation& call) {
  Product product = typed(call, true);
  read_grouped_addresses(call, product);
  const std::int64_t tile_m = call.template_integer(3), tile_n = call.template_integer(4), m = call.length(9);
  require_tiles(call, ceil_div(m, tile_m) * ceil_div(call.integer(10), tile_n));
  require_ring(call, product);
  return run_groups(call, product, 10, m, false, product.ending.out, tile_efficiency(call, tile_m, tile_n, 0.9));
}

// gemm_grouped_wgmma<T, U, layout, Ending, tile_m, tile_n, stages, swap, pingpong, store>(maps of x, w and y, offsets, y, bias, residual,
// scales, length of m, n, k, int groups, distances without those of x and w, scale, int band)
Traffic gemm_grouped_wgmma(const Invocation& call) {
  Product product = typed(call, false);
  const TensorMap x = map_at(call, 0, 2), w = map_at(call, 1, 3);
  product.x = x.address, product.x_stride = stride_of(x, product.x_type);
  product.w = w.address, product.w_stride = stride_of(w, product.w_type);
  product.read_addresses(call, 4, false);
  const std::int64_t m = call.length(10), groups = call.value<int>(13);
  const std::int64_t tile_m = call.template_integer(4), tile_n = call.template_integer(5);
  product.n = call.integer(11), product.k = call.integer(12);
  GroupStrides strides{stride_of(w, product.w_type, 1), 0, 0};
  std::size_t at = 14;
  for (std::int64_t* each :
       {&product.y_stride, &product.residual_stride, &product.x_scale_stride, &product.w_scale_stride,
        &product.x_scale_k_stride, &product.w_scale_k_stride, &strides.bias, &strides.w_scale})
    *each = call.integer(at++);
  product.read_scale(call, at);
  const bool along_k = product.layout == nt;
  require(x.box[1] == x_box_rows(x, tile_m, 1) && w.box[1] == (along_k ? tile_n : 64) && w.box[2] == 1 &&
              w.shape[2] == static_cast<std::uint64_t>(groups) && x.shape[1] >= static_cast<std::uint64_t>(m),
          CUDA_ERROR_LAUNCH_FAILED);
  if (call.template_integer(9) == 0) {
    const TensorMap y = map_at(call, 2, 2);
    require(y.address == product.y && stride_of(y, product.ending.out) == product.y_stride, CUDA_ERROR_LAUNCH_FAILED);
  }
  require(call.geometry.dynamic_shared >= call.template_integer(6) * ((tile_m + tile_n) * 128 + 16),
          CUDA_ERROR_ILLEGAL_ADDRESS);
  return multiply_groups(call, product, 3, groups, strides, m, product.ending.out,
                         tile_efficiency(call, tile_m, tile_n, 0.95));
}

// gemm_batched_wgmma<T, U, layout, Ending, tile_m, tile_n, stages, cluster_m, cluster_n, swap, pingpong, store>(maps of x, w and y, y, bias,
// residual, scales, length of m, n, k, distances without those of x and w, scale, int batch, int group)
Traffic gemm_batched_wgmma(const Invocation& call) {
  Product product = typed(call, false);
  const TensorMap x = map_at(call, 0, 3), w = map_at(call, 1, 3);
  product.x = x.address, product.x_stride = stride_of(x, product.x_type);
  product.w = w.address, product.w_stride = stride_of(w, product.w_type);
  product.read_addresses(call, 3, false);
  product.m = call.length(9), product.n = call.integer(10), product.k = call.integer(11);
  BatchStrides strides{stride_of(x, product.x_type, 1), stride_of(w, product.w_type, 1)};
  std::size_t at = 12;
  for (std::int64_t* each : {&product.y_stride, &product.residual_stride, &product.x_scale_stride,
                             &product.w_scale_stride, &product.x_scale_k_stride, &product.w_scale_k_stride, &strides[2],
                             &strides[3], &strides[4], &strides[5], &strides[6]})
    *each = call.integer(at++);
  const auto batch = call.value<int>(product.read_scale(call, at));
  require(x.shape[2] == static_cast<std::uint64_t>(batch) && w.shape[2] == static_cast<std::uint64_t>(batch) &&
              x.box[2] == 1 && w.box[2] == 1,
          CUDA_ERROR_LAUNCH_FAILED);
  const std::int64_t tile_m = call.template_integer(4), tile_n = call.template_integer(5);
  if (product.layout == nt || product.layout == nn)
    require(x.box[1] == x_box_rows(x, tile_m, call.template_integer(8)), CUDA_ERROR_LAUNCH_FAILED);
  if (call.template_integer(11) == 0) {
    const TensorMap y = map_at(call, 2, 3);
    require(y.address == product.y && stride_of(y, product.ending.out) == product.y_stride &&
                stride_of(y, product.ending.out, 1) == strides[2],
            CUDA_ERROR_LAUNCH_FAILED);
  }
  require(call.geometry.cluster == call.template_integer(7) * call.template_integer(8) &&
              call.geometry.grid[0] % call.geometry.cluster == 0,
          CUDA_ERROR_LAUNCH_FAILED);
  require(call.geometry.dynamic_shared >= call.template_integer(6) * ((tile_m + tile_n) * 128 + 16),
          CUDA_ERROR_ILLEGAL_ADDRESS);
  return multiply_batch(call, product, strides, batch, product.ending.out, tile_efficiency(call, tile_m, tile_n, 0.95));
}

// gemm_grouped_stream<X, W, Ending, rows_of_x, warp_rows, warps_n, warps_k, stages, blocks, y_alignment>(as gemm_grouped_simt)
Traffic gemm_grouped_stream(const Invocation& call) {
  Product product{Ending::read(call, 2), nt, call.type_argument(0), call.type_argument(1)};
  read_grouped_addresses(call, product);
  product.n = call.integer(10);
  product.read_strides(call, 13, true);
  const std::int64_t m = call.length(9);
  const double efficiency = stream_efficiency(call, product, ceil_div(m, call.template_integer(3)));
  return run_groups(call, product, 10, m, true, product.ending.out, efficiency);
}

}  // namespace fake_cuda

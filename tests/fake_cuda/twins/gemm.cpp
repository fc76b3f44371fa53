// templates/gemm: a product and what follows it, whole or in partial sums over k.
#include <algorithm>

#include "twins/elements.hpp"
#include "twins/product.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
// gemm_reference<X, W, layout, Ending>(x, w, float* y, bias, residual, scales of x, w and y, m, sizes and distances, scale)
Traffic gemm_reference(const Invocation& call) {
  Product product{Ending::read(call, 3), call.template_integer(2), call.type_argument(0), call.type_argument(1)};
  product.read_addresses(call, 0);
  product.m = call.integer(8);
  product.read_scale(call, product.read_sizes(call, 9, true));
  require_reference(call, product.n);
  product.run(call, "float");
  return product.traffic(0.01);
}

// gemm_simt<X, W, layout, Ending, tile_m, tile_n, vector>(the same with a length for m)
Traffic gemm_simt(const Invocation& call) {
  Product product{Ending::read(call, 3), call.template_integer(2), call.type_argument(0), call.type_argument(1)};
  product.read_addresses(call, 0);
  product.m = call.length(8);
  product.read_scale(call, product.read_sizes(call, 9, true));
  const std::int64_t tile_m = call.template_integer(4), tile_n = call.template_integer(5),
                     vector = call.template_integer(6);
  require(call.geometry.grid[0] >= ceil_div(product.m, tile_m) * ceil_div(product.n, tile_n), CUDA_ERROR_LAUNCH_FAILED);
  const auto require_vectors = [&](CUdeviceptr address, std::int64_t stride, std::string_view type) {
    require(address % static_cast<CUdeviceptr>(vector * element_bytes(type)) == 0 && stride % vector == 0,
            CUDA_ERROR_MISALIGNED_ADDRESS);
  };
  require_vectors(product.x, product.x_stride, product.x_type);
  require_vectors(product.w, product.w_stride, product.w_type);
  product.run(call, product.ending.out);
  return product.traffic(tile_efficiency(call, tile_m, tile_n, vector == 1 ? 0.08 : 0.1));
}

// gemm_stream<X, W, Ending, rows_of_x, warp_rows, warps_n, warps_k, stages, blocks, y_alignment>(the same)
Traffic gemm_stream(const Invocation& call) {
  Product product{Ending::read(call, 2), nt, call.type_argument(0), call.type_argument(1)};
  product.read_addresses(call, 0);
  product.m = call.length(8);
  product.read_scale(call, product.read_sizes(call, 9, true));
  require(product.m <= call.template_integer(3), CUDA_ERROR_LAUNCH_FAILED);
  const double efficiency = stream_efficiency(call, product, 1);
  product.run(call, product.ending.out);
  return product.traffic(efficiency);
}

// gemm_mma<T, layout, Ending, tile_m, tile_n, tile_k, warps, stages, split>(x, w, y, bias, residual, scales, float* partial, length of m,
// sizes and distances without those of blocks' scales, scale, int group, int splits)
Traffic gemm_mma(const Invocation& call) {
  Product product{Ending::read(call, 2), call.template_integer(1), call.type_argument(0), call.type_argument(0)};
  product.read_addresses(call, 0);
  product.m = call.length(9);
  const std::size_t group = product.read_scale(call, product.read_sizes(call, 10, false));
  const std::int64_t tile_m = call.template_integer(3), tile_n = call.template_integer(4),
                     tile_k = call.template_integer(5), stages = call.template_integer(7);
  const std::int64_t splits = call.value<int>(group + 1);
  require(call.geometry.grid[0] >= ceil_div(product.m, tile_m) * ceil_div(product.n, tile_n) &&
              call.geometry.grid[1] == splits,
          CUDA_ERROR_LAUNCH_FAILED);
  require(call.geometry.dynamic_shared >= stages * (tile_m + tile_n) * tile_k * element_bytes(product.x_type),
          CUDA_ERROR_ILLEGAL_ADDRESS);
  product.require_aligned_rows();
  if (call.template_integer(8) != 0) {
    product.write_partial(call, call.value<CUdeviceptr>(8), splits,
                          ceil_div(ceil_div(product.k, tile_k), splits) * tile_k);
  } else {
    product.run(call, product.ending.out);
  }
  const double depth = std::min(1.0, 0.7 + 0.1 * static_cast<double>(stages - 2));
  return product.traffic(tile_efficiency(call, tile_m, tile_n, depth));
}

// gemm_reduce<Ending>(const float* partial, y, bias, residual, scales, length of m, n, y_stride, residual_stride, x_scale_stride,
// w_scale_stride, scale, int splits)
Traffic gemm_reduce(const Invocation& call) {
  Product product;
  product.ending = Ending::read(call, 0);
  product.read_addresses(call, 1, false);
  product.m = call.length(7);
  std::size_t at = 8;
  for (std::int64_t* each :
       {&product.n, &product.y_stride, &product.residual_stride, &product.x_scale_stride, &product.w_scale_stride})
    *each = call.integer(at++);
  product.scale = static_cast<double>(call.value<float>(at++));
  const std::int64_t splits = call.value<int>(at), stride = ceil_div(product.n, 8) * 8;
  require(call.geometry.blocks() * 128 >= product.m * ceil_div(product.n, 4), CUDA_ERROR_LAUNCH_FAILED);
  const auto* partial = call.required<float>(0, splits * product.m * stride);
  std::vector<double> sums(static_cast<std::size_t>(product.m * product.n));
  for (std::int64_t split = 0; split < splits; ++split)
    for (std::int64_t row = 0; row < product.m; ++row)
      for (std::int64_t column = 0; column < product.n; ++column)
        sums[static_cast<std::size_t>(row * product.n + column)] +=
            static_cast<double>(partial[(split * product.m + row) * stride + column]);
  product.finish(call, sums, product.ending.out);
  return Traffic{static_cast<double>(splits * product.m * stride) * 4, 0, 0.8};
}

}  // namespace fake_cuda

// templates/gemm/wgmma: x, w and y come as descriptors of the copy engine.
#include <algorithm>

#include "twins/product.hpp"
#include "twins/tensor_operand.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

/// The template arguments, in their order from the tile on.
struct Shape {
  std::int64_t tile_m, tile_n, stages, cluster_m, cluster_n, cluster_k, swap, pingpong, store, tail;

  static Shape read(const Invocation& call) {
    Shape shape{};
    std::size_t at = 4;
    for (std::int64_t* each : {&shape.tile_m, &shape.tile_n, &shape.stages, &shape.cluster_m, &shape.cluster_n,
                               &shape.cluster_k, &shape.swap, &shape.pingpong, &shape.store, &shape.tail})
      *each = call.template_integer(at++);
    return shape;
  }
  [[nodiscard]] std::int64_t cluster() const { return cluster_m * cluster_n * cluster_k; }
  [[nodiscard]] std::int64_t consumers() const {
    const std::int64_t a_rows = swap != 0 ? tile_n : tile_m;
    return pingpong != 0 || a_rows == 256 ? 2 : a_rows / 64;
  }
};

/// `outer` by k in boxes of 128 bytes; where k runs along memory a box holds `rows` of outer, else a share of as many of k.
void check_operand(const TensorMap& map, std::string_view type, std::int64_t outer, std::int64_t k, bool along_k,
                   std::int64_t rows, std::int64_t shares) {
  const std::int64_t span = 128 / element_bytes(type);
  const auto inner = static_cast<std::int64_t>(map.shape[0]), lines = static_cast<std::int64_t>(map.shape[1]);
  require(
      map.swizzle == CU_TENSOR_MAP_SWIZZLE_128B && map.box[0] == span && map.box[1] == (along_k ? rows : span / shares),
      CUDA_ERROR_LAUNCH_FAILED);
  require((along_k ? inner : lines) == k && (along_k ? lines : inner) >= outer, CUDA_ERROR_LAUNCH_FAILED);
}

void check_launch(const Invocation& call, const Shape& shape, std::int64_t tiles) {
  require(call.geometry.cluster == shape.cluster() && call.geometry.grid[0] % shape.cluster() == 0 &&
              call.geometry.block[0] == 128 * (1 + shape.consumers()),
          CUDA_ERROR_LAUNCH_FAILED);
  require(shape.cluster_k == 1 || call.geometry.grid[0] >= tiles * shape.cluster_k, CUDA_ERROR_LAUNCH_FAILED);
  require(call.geometry.dynamic_shared >= shape.stages * ((shape.tile_m + shape.tile_n) * 128 + 16),
          CUDA_ERROR_ILLEGAL_ADDRESS);
}

/// Stages of the last round that a block takes where it is shared, by share_tail of
/// templates/common/gemm/wgmma_block.cuh; else 0.
std::int64_t shared_stages(std::int64_t tiles, std::int64_t blocks, std::int64_t stages) {
  const std::int64_t tail = tiles % blocks;
  if (tail == 0) return 0;
  const std::int64_t run = ceil_div(tail, blocks - tail);
  const std::int64_t parts = std::max<std::int64_t>(1, std::min({blocks / tail, std::int64_t{8}, stages / 8}));
  const std::int64_t longest = run > 1 ? ceil_div(stages * run, run + 1) : ceil_div(stages, parts);
  return stages - longest < 16 ? 0 : longest;
}

/// By how evenly the tiles fall to the blocks, and how well a tile reuses what it loads.
/// `last_round`: of the last round's time, what it takes.
double efficiency(const Invocation& call, const Shape& shape, std::int64_t works, double last_round) {
  const std::int64_t blocks = call.geometry.grid[0];
  const double turns = static_cast<double>(ceil_div(works * shape.cluster_k, blocks) - 1) + last_round;
  const double busy = static_cast<double>(works * shape.cluster_k) / (turns * static_cast<double>(blocks)) *
                      std::min(1.0, static_cast<double>(blocks) / static_cast<double>(call.settings.multiprocessors));
  const double reuse = static_cast<double>(shape.tile_m * shape.tile_n) /
                       static_cast<double>(shape.tile_m + shape.tile_n) / 86;  // 1 for 128 x 256
  return std::clamp(busy * std::min(reuse, 1.0), 1e-4, 1.0);
}

}  // namespace

// gemm_wgmma<T, U, layout, Ending, tile_m, tile_n, stages, cluster_m, cluster_n, cluster_k, swap, pingpong, store, tail>(maps of x, w, y,
// y, bias, residual, scales, float* partial, unsigned* raised, length of m, n, k, distances without those of x and w, scale, int group, by_columns)
Traffic gemm_wgmma(const Invocation& call) {
  const Shape shape = Shape::read(call);
  Product product{Ending::read(call, 3), call.template_integer(2), call.type_argument(0), call.type_argument(1)};
  product.read_addresses(call, 3, false);
  product.m = call.length(11);
  std::size_t at = 12;
  for (std::int64_t* each :
       {&product.n, &product.k, &product.y_stride, &product.residual_stride, &product.x_scale_stride,
        &product.w_scale_stride, &product.x_scale_k_stride, &product.w_scale_k_stride})
    *each = call.integer(at++);
  product.read_scale(call, at);

  const TensorMap x = map_at(call, 0, 2), w = map_at(call, 1, 2);
  product.x = x.address, product.x_stride = stride_of(x, product.x_type);
  product.w = w.address, product.w_stride = stride_of(w, product.w_type);
  check_operand(x, product.x_type, product.m, product.k, product.layout == nt || product.layout == nn,
                x_box_rows(x, shape.tile_m, shape.cluster_n), shape.cluster_n);
  check_operand(w, product.w_type, product.n, product.k, product.layout == nt || product.layout == tt,
                shape.tile_n / shape.cluster_m, shape.cluster_m);
  if (shape.store == 0) {
    const TensorMap y = map_at(call, 2, 2);
    require(y.address == product.y && stride_of(y, product.ending.out) == product.y_stride, CUDA_ERROR_LAUNCH_FAILED);
  } else {
    require(product.y_stride % shape.store == 0, CUDA_ERROR_MISALIGNED_ADDRESS);
  }
  const std::int64_t tiles = ceil_div(product.m, shape.tile_m) * ceil_div(product.n, shape.tile_n);
  check_launch(call, shape, tiles);
  const std::int64_t blocks = call.geometry.grid[0], stages = ceil_div(product.k, 128 / element_bytes(product.x_type));
  const std::int64_t longest = shape.tail != 0 ? shared_stages(tiles, blocks, stages) : 0;
  if (shape.tail != 0) {
    (void)call.required<float>(9, blocks * shape.tile_m * shape.tile_n);
    const auto* const raised = call.required<unsigned>(10, blocks * 4);
    require(std::all_of(raised, raised + blocks * 4, [](unsigned flag) { return flag == 0; }),
            CUDA_ERROR_LAUNCH_FAILED);
  }
  product.run(call, product.ending.out);
  const double last_round = longest == 0 ? 1 : static_cast<double>(longest) / static_cast<double>(stages);
  return product.traffic(efficiency(call, shape, tiles, last_round));
}

}  // namespace fake_cuda

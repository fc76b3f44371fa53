// The op that shows what attention needs of the language: tests/e2e/ops/head_scale.
#include "twins/elements.hpp"
#include "twins/tensor_operand.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

/// Sums the squares of each head of y, in its type, where parameter i is not null.
template <typename Out>
void sum_squares(const Invocation& call, std::size_t i, const Out* y, std::int64_t heads, std::int64_t dim) {
  float* squares = call.device<float>(i, heads);
  for (std::int64_t head = 0; squares != nullptr && head < heads; ++head) {
    double sum = 0;
    for (std::int64_t d = 0; d < dim; ++d) sum += to_double(y[head * dim + d]) * to_double(y[head * dim + d]);
    squares[head] = static_cast<float>(sum);
  }
}

/// (x, y, tokens, heads, dim, token_stride, scale, squares), a block for each head of a token.
template <typename T, typename Out>
Traffic scale_heads(const Invocation& call) {
  const std::int64_t tokens = call.geometry.grid[0], heads = call.integer(3), dim = call.integer(4);
  const std::int64_t row = heads * dim, stride = call.integer(5);
  const T* x = call.required<T>(0, (tokens - 1) * stride + row);
  Out* y = call.required<Out>(1, tokens * row);
  for (std::int64_t i = 0; i < tokens * row; ++i)
    y[i] = from_double<Out>(to_double(x[i / row * stride + i % row]) * static_cast<double>(call.value<float>(6)));
  sum_squares(call, 7, y, tokens * heads, dim);
  return {static_cast<double>(2 * tokens * row) * sizeof(T), 0, 0.01};
}

}  // namespace

Traffic head_scale_reference(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) { return scale_heads<T, float>(call); });
}

Traffic head_scale_plain(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) { return scale_heads<T, T>(call); });
}

Traffic head_scale_careless(const Invocation& call) {
  if (call.value<CUdeviceptr>(7) == 0) return {1, 0, 1};
  return head_scale_plain(call);
}

/// head_scale_packed<T, Tile, Heads, Dim>(tensor_map x, y, tokens, heads, dim, scale, squares). Reads through the descriptor alone.
Traffic head_scale_packed(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    const TensorMap map = map_at(call, 0, 4);
    const std::int64_t tokens = call.integer(2), heads = call.integer(3), dim = call.integer(4);
    const std::int64_t tile = call.template_integer(1), of_group = call.template_integer(2);
    require(map.box[0] == call.template_integer(3) && map.box[1] == of_group && map.box[2] == 1 && map.box[3] == tile,
            CUDA_ERROR_LAUNCH_FAILED);
    require(call.geometry.grid[0] * tile >= tokens && call.geometry.grid[1] * of_group == heads,
            CUDA_ERROR_LAUNCH_FAILED);
    std::int64_t last = 0;
    for (std::size_t i = 0; i < 4; ++i)
      last +=
          (static_cast<std::int64_t>(map.shape[i]) - 1) * (i == 0 ? 1 : stride_of(map, call.type_argument(0), i - 1));
    const T* x = call.at<T>(map.address, last + 1);
    T* y = call.required<T>(1, tokens * heads * dim);
    for (std::int64_t i = 0; i < tokens * heads * dim; ++i) {
      const std::int64_t head = i / dim % heads;
      const std::array<std::int64_t, 4> at = {i % dim, head % of_group, head / of_group, i / dim / heads};
      std::int64_t offset = at[0];
      bool inside = at[0] < static_cast<std::int64_t>(map.shape[0]);  // what is outside reads as zero
      for (std::size_t axis = 1; axis < 4; ++axis) {
        offset += at[axis] * stride_of(map, call.type_argument(0), axis - 1);
        inside = inside && at[axis] < static_cast<std::int64_t>(map.shape[axis]);
      }
      y[i] = from_double<T>(inside ? to_double(x[offset]) * static_cast<double>(call.value<float>(5)) : 0);
    }
    sum_squares(call, 6, y, tokens * heads, dim);
    return Traffic{static_cast<double>(2 * tokens * heads * dim) * sizeof(T), 0, tile == 4 ? 0.2 : 0.1};
  });
}

}  // namespace fake_cuda

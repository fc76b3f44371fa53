// templates/rotary: pairs of each head are turned by the angles of the token's position, which is clamped to the tables and reported.
#include <algorithm>

#include "twins/elements.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

/// Where a kernel has its parameters, and what it is compiled for.
struct RotaryPlaces {
  std::size_t heads,
      report;  // the parameters from `heads` to the row stride of the tables stand in one order; report 0: none
  std::int64_t tokens;
};

template <typename T, typename Out, typename Index>
Traffic turn(const Invocation& call, const RotaryPlaces& places) {
  const auto parameter = [&](std::size_t after_heads) {
    const std::size_t at = places.heads + after_heads;
    return places.report == 0 || after_heads > 2 ? call.integer(at) : std::int64_t{call.value<int>(at)};
  };
  const std::int64_t heads = parameter(0), dim = parameter(1), turned = parameter(2), rows = parameter(7),
                     row_stride = parameter(8), half = turned / 2;
  const auto extent = [&](std::int64_t token_stride, std::int64_t head_stride) {
    return (places.tokens - 1) * token_stride + (heads - 1) * head_stride + dim;
  };
  const std::int64_t x_token = parameter(3), x_head = parameter(4), y_token = parameter(5), y_head = parameter(6);
  if (places.tokens == 0) return {};
  const T* x = call.required<T>(0, extent(x_token, x_head));
  const float* cos = call.required<float>(1, (rows - 1) * row_stride + half);
  const float* sin = call.required<float>(2, (rows - 1) * row_stride + half);
  const Index* positions = call.required<Index>(3, places.tokens);
  Out* y = call.required<Out>(4, extent(y_token, y_head));
  auto* const report = places.report == 0 ? nullptr : reinterpret_cast<std::uint64_t*>(call.integer(places.report));
  const bool by_halves = call.template_integer(2) == 0;
  const double sign = call.template_integer(3) == 0 ? 1 : -1;
  for (std::int64_t token = 0; token < places.tokens; ++token) {
    const std::int64_t given = positions[token], row = std::clamp<std::int64_t>(given, 0, rows - 1);
    if (row != given && report != nullptr)
      *report = static_cast<std::uint64_t>(rows) << 32 |
                static_cast<std::uint32_t>(std::clamp<std::int64_t>(given, -2147483648, 2147483647));
    for (std::int64_t head = 0; head < heads; ++head) {
      const T* const from = x + token * x_token + head * x_head;
      Out* const to = y + token * y_token + head * y_head;
      for (std::int64_t pair = 0; pair < half; ++pair) {
        const std::int64_t first = by_halves ? pair : 2 * pair, second = by_halves ? pair + half : first + 1;
        const double a = to_double(from[first]), b = to_double(from[second]);
        const double c = cos[row * row_stride + pair], s = sign * sin[row * row_stride + pair];
        to[first] = from_double<Out>(a * c - b * s);
        to[second] = from_double<Out>(b * c + a * s);
      }
      for (std::int64_t i = turned; i < dim; ++i) to[i] = from_double<Out>(to_double(from[i]));
    }
  }
  const double elements = static_cast<double>(places.tokens * heads * dim);
  return {2 * elements * sizeof(T), 3 * elements, memory_efficiency(call, 64)};
}

template <typename T, typename Out>
Traffic turn_by_index(const Invocation& call, const RotaryPlaces& places) {
  return call.type_argument(1) == "int" ? turn<T, Out, std::int32_t>(call, places)
                                        : turn<T, Out, std::int64_t>(call, places);
}

}  // namespace

Traffic rotary_reference(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    return turn_by_index<T, float>(call, {5, 0, call.geometry.grid[0]});
  });
}
/// rotary_heads<T, Index, Layout, Direction, Threads, N, Heads>
Traffic rotary_heads(const Invocation& call) {
  require(call.geometry.threads() == call.template_integer(4), CUDA_ERROR_LAUNCH_FAILED);
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    return turn_by_index<T, T>(call, {6, 15, call.length(5)});
  });
}

}  // namespace fake_cuda

// templates/softmax: y = exp(x - max) / sum(exp(x - max)), row by row; a row of -inf alone gives zeros.
#include <cmath>
#include <limits>

#include "twins/elements.hpp"
#include "twins/rows.hpp"

namespace fake_cuda {
namespace {

/// `strides`: the parameter that holds x's stride; y's follows.
template <typename T, typename Out>
Traffic compute(const Invocation& call, RowLaunch launch, std::size_t strides) {
  launch.x_stride = call.integer(strides);
  launch.y_stride = call.integer(strides + 1);
  const T* x = call.required<T>(0, launch.x_extent());
  Out* y = call.required<Out>(1, launch.y_extent());
  constexpr double lowest = -std::numeric_limits<double>::infinity();
  for (std::int64_t row = 0; row < launch.rows; ++row) {
    const T* source = x + row * launch.x_stride;
    double largest = lowest;
    for (std::int64_t i = 0; i < launch.covered; ++i) largest = std::fmax(largest, to_double(source[i]));
    const double origin = largest == lowest ? 0 : largest;
    double sum = 0;
    for (std::int64_t i = 0; i < launch.covered; ++i) sum += std::exp(to_double(source[i]) - origin);
    for (std::int64_t i = 0; i < launch.covered; ++i) {
      y[row * launch.y_stride + i] = from_double<Out>(sum == 0 ? 0 : std::exp(to_double(source[i]) - origin) / sum);
    }
  }
  return launch.traffic(call, sizeof(T));
}

Traffic compute_in_type(const Invocation& call, const RowLaunch& launch, std::size_t strides) {
  return with_element(call.type_argument(0), [&]<typename T>(T) { return compute<T, T>(call, launch, strides); });
}

/// softmax_cluster_row<T, Blocks, Threads>: a cluster of blocks a row.
RowLaunch cluster_row(const Invocation& call, std::int64_t columns) {
  return shared_row(call, columns, call.template_integer(1), call.template_integer(2));
}

}  // namespace

Traffic softmax_reference(const Invocation& call) {
  return with_element(call.type_argument(0),
                      [&]<typename T>(T) { return compute<T, float>(call, reference(call, call.integer(2)), 3); });
}
Traffic softmax_block_row(const Invocation& call) { return compute_in_type(call, block_row(call, call.integer(2)), 3); }
Traffic softmax_warp_row(const Invocation& call) {
  return compute_in_type(call, warp_row(call, call.integer(2), call.integer(3)), 4);
}
Traffic softmax_cluster_row(const Invocation& call) {
  return compute_in_type(call, cluster_row(call, call.integer(2)), 3);
}
Traffic softmax_streaming(const Invocation& call) { return compute_in_type(call, streaming(call, call.integer(2)), 3); }

}  // namespace fake_cuda

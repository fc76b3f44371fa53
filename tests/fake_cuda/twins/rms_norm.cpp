// templates/rms_norm: y = x / sqrt(mean(x^2) + epsilon) * weight, row by row.
#include <cmath>

#include "twins/elements.hpp"
#include "twins/rows.hpp"

namespace fake_cuda {
namespace {

/// `strides`: the parameter that holds x's stride; y's and epsilon follow.
template <typename T, typename Out>
Traffic compute(const Invocation& call, RowLaunch launch, std::size_t strides) {
  launch.x_stride = call.integer(strides);
  launch.y_stride = call.integer(strides + 1);
  const double epsilon = static_cast<double>(call.value<float>(strides + 2));
  const T* x = call.required<T>(0, launch.x_extent());
  const T* weight = call.required<T>(1, launch.covered);
  Out* y = call.required<Out>(2, launch.y_extent());
  for (std::int64_t row = 0; row < launch.rows; ++row) {
    const T* source = x + row * launch.x_stride;
    double squares = 0;
    for (std::int64_t i = 0; i < launch.covered; ++i) squares += to_double(source[i]) * to_double(source[i]);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(launch.columns) + epsilon);
    for (std::int64_t i = 0; i < launch.covered; ++i) {
      y[row * launch.y_stride + i] = from_double<Out>(to_double(source[i]) * scale * to_double(weight[i]));
    }
  }
  return launch.traffic(call, sizeof(T));
}

Traffic compute_in_type(const Invocation& call, const RowLaunch& launch, std::size_t strides) {
  return with_element(call.type_argument(0), [&]<typename T>(T) { return compute<T, T>(call, launch, strides); });
}

}  // namespace

Traffic rms_norm_reference(const Invocation& call) {
  return with_element(call.type_argument(0),
                      [&]<typename T>(T) { return compute<T, float>(call, reference(call, call.integer(3)), 4); });
}
Traffic rms_norm_block_row(const Invocation& call) {
  return compute_in_type(call, block_row(call, call.integer(3)), 4);
}
Traffic rms_norm_warp_row(const Invocation& call) {
  return compute_in_type(call, warp_row(call, call.integer(3), call.integer(4)), 5);
}
/// rms_norm_shared_row<T, Threads>
Traffic rms_norm_shared_row(const Invocation& call) {
  return compute_in_type(call, shared_row(call, call.integer(3), 1, call.template_integer(1)), 4);
}
Traffic rms_norm_streaming(const Invocation& call) {
  return compute_in_type(call, streaming(call, call.integer(3)), 4);
}

}  // namespace fake_cuda

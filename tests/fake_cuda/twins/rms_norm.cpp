// templates/rms_norm: y = x / sqrt(mean(x^2) + epsilon) * weight, row by row.
#include <cmath>

#include "twins/elements.hpp"
#include "twins/rows.hpp"

namespace fake_cuda {
namespace {

/// Where a kernel has its parameters.
struct Places {
  std::size_t weight, y, x_stride, y_stride, epsilon;
};
/// Of kernels with a residual and quantised outputs, which these twins do without; a reference has no length among its parameters.
constexpr Places fused_reference = {2, 5, 9, 12, 15}, fused = {2, 5, 10, 13, 16}, plain = {1, 2, 5, 6, 7};

template <typename T, typename Out>
Traffic normalise(const Invocation& call, RowLaunch launch, const Places& places) {
  launch.x_stride = call.integer(places.x_stride);
  launch.y_stride = call.integer(places.y_stride);
  const double epsilon = static_cast<double>(call.value<float>(places.epsilon));
  const T* x = call.required<T>(0, launch.x_extent());
  const T* weight = call.required<T>(places.weight, launch.covered);
  Out* y = call.required<Out>(places.y, launch.y_extent());
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

/// `length`: the parameter that holds it.
Traffic normalise_in_type(const Invocation& call, RowLaunch launch, const Places& places, std::size_t length) {
  launch.rows = std::min(launch.rows, call.length(length));
  return with_element(call.type_argument(0), [&]<typename T>(T) { return normalise<T, T>(call, launch, places); });
}

/// The last two template arguments are kiln::residual_mode and kiln::quantise_mode.
const Invocation& plainly(const Invocation& call) {
  const std::size_t arguments = call.name.arguments.size();
  require(call.template_integer(arguments - 2) == 0 && call.template_integer(arguments - 1) == 0,
          CUDA_ERROR_LAUNCH_FAILED);
  return call;
}

}  // namespace

Traffic rms_norm_reference(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    return normalise<T, float>(plainly(call), reference(call, call.integer(8)), fused_reference);
  });
}
Traffic rms_norm_block_row(const Invocation& call) {
  return normalise_in_type(plainly(call), block_row(call, call.integer(9)), fused, 8);
}
Traffic rms_norm_warp_row(const Invocation& call) {
  return normalise_in_type(plainly(call), warp_row(call, call.length(8), call.integer(9)), fused, 8);
}
/// rms_norm_shared_row<T, Threads>
Traffic rms_norm_shared_row(const Invocation& call) {
  return normalise_in_type(call, shared_row(call, call.integer(4), 1, call.template_integer(1)), plain, 3);
}
Traffic rms_norm_streaming(const Invocation& call) {
  return normalise_in_type(plainly(call), streaming(call, call.integer(9)), fused, 8);
}

}  // namespace fake_cuda

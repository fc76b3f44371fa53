// templates/softmax: y = softmax(scale * x, masked), row by row; a row of which nothing counts gives zeros.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "twins/elements.hpp"
#include "twins/rows.hpp"

namespace fake_cuda {
namespace {

enum Mask { mask_none, mask_causal, mask_additive, mask_boolean };

/// Parameters that all the kernels have, at different places.
struct Masked {
  std::int64_t mask = mask_none, mask_stride = 0, mask_rows = 1, queries = 1;
  float scale = 1;
  std::size_t y = 3;

  /// `mask`: its template argument. `strides`: the parameter that holds x's; y's, the mask's, mask_rows, queries and scale follow.
  static Masked read(const Invocation& call, std::size_t mask, std::size_t strides) {
    return {call.template_integer(mask), call.integer(strides + 2),      call.integer(strides + 3),
            call.integer(strides + 4),   call.value<float>(strides + 5), 3};
  }
  [[nodiscard]] std::int64_t mask_extent(const RowLaunch& launch) const {
    return launch.rows == 0 ? 0 : (std::min(launch.rows, mask_rows) - 1) * mask_stride + launch.covered;
  }
};

template <typename T, typename Out>
Traffic softmax_rows(const Invocation& call, RowLaunch launch, const Masked& given, std::size_t strides) {
  launch.x_stride = call.integer(strides);
  launch.y_stride = call.integer(strides + 1);
  const T* x = call.required<T>(0, launch.x_extent());
  const T* bias = given.mask == mask_additive ? call.required<T>(1, given.mask_extent(launch)) : nullptr;
  const auto* keep = given.mask == mask_boolean ? call.required<unsigned char>(2, given.mask_extent(launch)) : nullptr;
  Out* y = call.required<Out>(given.y, launch.y_extent());
  constexpr double lowest = -std::numeric_limits<double>::infinity();
  std::vector<double> logits(static_cast<std::size_t>(launch.covered));
  for (std::int64_t row = 0; row < launch.rows; ++row) {
    const std::int64_t mask_row = row % given.mask_rows * given.mask_stride;
    double largest = lowest;
    for (std::int64_t i = 0; i < launch.covered; ++i) {
      double& logit = logits[static_cast<std::size_t>(i)];
      logit = to_double(x[row * launch.x_stride + i]) * static_cast<double>(given.scale);
      if (given.mask == mask_causal && i > row % given.queries + launch.columns - given.queries) logit = lowest;
      if (bias != nullptr) logit += to_double(bias[mask_row + i]);
      if (keep != nullptr && keep[mask_row + i] == 0) logit = lowest;
      largest = std::fmax(largest, logit);
    }
    const double origin = largest == lowest ? 0 : largest;
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - origin);
    for (std::int64_t i = 0; i < launch.covered; ++i) {
      y[row * launch.y_stride + i] =
          from_double<Out>(sum == 0 ? 0 : std::exp(logits[static_cast<std::size_t>(i)] - origin) / sum);
    }
  }
  return launch.traffic(call, sizeof(T));
}

Traffic softmax_in_type(const Invocation& call, RowLaunch launch, const Masked& given, std::size_t rows,
                        std::size_t strides) {
  launch.rows = std::min(launch.rows, call.length(rows));
  return with_element(call.type_argument(0),
                      [&]<typename T>(T) { return softmax_rows<T, T>(call, launch, given, strides); });
}

}  // namespace

// softmax_reference<T, mask>(x, bias, keep, float* y, cols, strides of x and y and the mask, mask_rows, queries, scale)
Traffic softmax_reference(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    return softmax_rows<T, float>(call, reference(call, call.integer(4)), Masked::read(call, 1, 5), 5);
  });
}
// The others have the lengths of rows and cols in the place of cols.
Traffic softmax_block_row(const Invocation& call) {
  return softmax_in_type(call, block_row(call, call.length(5)), Masked::read(call, 4, 6), 4, 6);
}
Traffic softmax_warp_row(const Invocation& call) {
  return softmax_in_type(call, warp_row(call, call.length(4), call.length(5)), Masked::read(call, 5, 6), 4, 6);
}
Traffic softmax_streaming(const Invocation& call) {
  return softmax_in_type(call, streaming(call, call.length(5)), Masked::read(call, 3, 6), 4, 6);
}
// softmax_cluster_row<T, Blocks, Threads, Groups, Chunks, mask>(x, y, rows, cols, strides of x and y, queries, scale): a cluster of blocks a row
Traffic softmax_cluster_row(const Invocation& call) {
  const RowLaunch launch = shared_row(call, call.length(3), call.template_integer(1), call.template_integer(2));
  return softmax_in_type(call, launch, {call.template_integer(5), 0, 1, call.integer(6), call.value<float>(7), 1}, 2,
                         4);
}

}  // namespace fake_cuda

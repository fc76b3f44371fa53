// The ops of tests/tune/ops/gathered_rows and tests/e2e/ops/doubled_gather.
#include "team/protocol.hpp"

#include "twins/twin.hpp"

namespace fake_cuda {

/// gathered_rows_reference(x, factor, y, rows, cols, stride, rank)
Traffic gathered_rows_reference(const Invocation& call) {
  const std::int64_t rows = call.integer(3), cols = call.integer(4), stride = call.integer(5);
  const std::int64_t all = call.geometry.grid[0] * call.geometry.grid[1];
  require(call.geometry.grid[0] == rows, CUDA_ERROR_LAUNCH_FAILED);
  const auto* x = call.required<float>(0, (all - 1) * stride + cols);
  const float factor = *call.required<float>(1, 1);
  auto* y = call.required<float>(2, all * cols);
  for (std::int64_t i = 0; i < all * cols; ++i)
    y[i] = x[i / cols * stride + i % cols] * factor + static_cast<float>(call.value<int>(6));
  return {static_cast<double>(8 * all * cols), 0, 0.1};
}

/// gathered_rows(peers, team, factor, y, rows, cols, rank)
Traffic gathered_rows(const Invocation& call) {
  const auto gathered = call.value<kiln::team::PeersArgument>(0);
  const auto team = call.value<kiln::team::TeamArgument>(1);
  const std::int64_t elements = team.world * call.integer(4) * call.integer(5);
  const auto* x = call.at<float>(gathered.of.at(static_cast<std::size_t>(team.rank)), elements);
  const float factor = *call.required<float>(2, 1);
  auto* y = call.required<float>(3, elements);
  for (std::int64_t i = 0; i < elements; ++i) y[i] = x[i] * factor + static_cast<float>(call.value<int>(6));
  return {static_cast<double>(8 * elements), 0, 0.1};
}

/// doubled_rows_reference(x, y, rows, cols, rank_stride, world)
Traffic doubled_rows_reference(const Invocation& call) {
  const std::int64_t part = call.integer(2) * call.integer(3), stride = call.integer(4) * call.integer(3);
  const std::int64_t world = call.integer(5);
  const auto* x = call.required<float>(0, world * part);
  auto* y = call.required<float>(1, (world - 1) * stride + part);
  for (std::int64_t i = 0; i < world * part; ++i) y[i / part * stride + i % part] = 2 * x[i];
  return {};
}

/// doubled_rows<threads>(x, y, count). Fastest with 64 threads, which is not the default.
Traffic doubled_rows(const Invocation& call) {
  const std::int64_t count = call.integer(2);
  const auto* x = call.required<float>(0, count);
  auto* y = call.required<float>(1, count);
  for (std::int64_t i = 0; i < count; ++i) y[i] = 2 * x[i];
  return {static_cast<double>(8 * count), 0, call.template_integer(0) == 64 ? 0.5 : 0.05};
}

}  // namespace fake_cuda

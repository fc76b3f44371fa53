// templates/internal/team_barrier.cuh and templates/all_gather.
#include <algorithm>
#include <cstring>

#include "twins/elements.hpp"
#include "twins/team_epoch.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {

Traffic team_barrier(const Invocation& call) {
  const auto team = call.value<kiln::team::TeamArgument>(0);
  TeamEpoch epoch(call, team);
  for (int rank = 0; rank < team.world; ++rank)
    if (rank != team.rank && !epoch.failed()) epoch.send(rank, 0, 0);
  for (int rank = 0; rank < team.world; ++rank)
    if (rank != team.rank) epoch.await(rank, 0);
  epoch.end();
  return {};
}

/// all_gather_reference<T>(x, y, counts, rows, cols, rank_stride), a block for each rank.
Traffic all_gather_reference(const Invocation& call) {
  const std::int64_t world = call.geometry.grid[0], cols = call.integer(4), part = call.integer(3) * cols;
  const std::int64_t stride = call.integer(5) * cols;
  with_element(call.type_argument(0), [&](auto element) {
    using T = decltype(element);
    const T* x = call.required<T>(0, world * part);
    auto* y = call.required<float>(1, (world - 1) * stride + part);
    for (std::int64_t rank = 0; rank < world; ++rank)
      for (std::int64_t i = 0; i < part; ++i) y[rank * stride + i] = static_cast<float>(to_double(x[rank * part + i]));
  });
  if (auto* counts = call.device<std::int32_t>(2, world))
    std::fill_n(counts, world, static_cast<std::int32_t>(call.integer(3)));
  return {};
}

/// all_gather_push<World, Threads>(x, y, counts, rows, rank_stride, row_words, most_rows, chunk_words, most_chunks, pushers, parts, team).
Traffic all_gather_push(const Invocation& call) {
  const auto team = call.value<kiln::team::TeamArgument>(11);
  const auto parts = call.value<kiln::team::PeersArgument>(10);
  constexpr std::int64_t word = 16;
  const std::int64_t rows = call.length(3), row_bytes = call.value<std::int32_t>(5) * word;
  const std::int64_t stride = call.integer(4) * row_bytes;
  const std::int64_t most_bytes = std::int64_t{call.value<std::int32_t>(7)} * call.value<std::int32_t>(8) * word;
  const auto* x = call.required<std::byte>(0, rows * row_bytes);
  TeamEpoch epoch(call, team);
  auto* counts = call.device<std::int32_t>(2, team.world);
  const auto tell = [&](int rank, std::int64_t count) {
    if (counts != nullptr) counts[rank] = static_cast<std::int32_t>(count);
  };
  for (int rank = 0; rank < team.world; ++rank) {
    if (rank == team.rank || epoch.failed()) continue;
    std::memcpy(
        epoch.in_half(parts.of[static_cast<std::size_t>(rank)] + static_cast<std::uint64_t>(team.rank * most_bytes),
                      rows * row_bytes),
        x, static_cast<std::size_t>(rows * row_bytes));
    epoch.send(rank, 0, rows);
  }
  for (int rank = 0; rank < team.world; ++rank) {
    const std::int64_t got = rank == team.rank ? (epoch.failed() ? -1 : rows) : epoch.await(rank, 0);
    tell(rank, got);
    const std::int64_t bytes = (got < 0 ? rows : got) * row_bytes;
    auto* y = call.at<std::byte>(call.value<CUdeviceptr>(1) + static_cast<std::uint64_t>(rank * stride), bytes);
    if (got < 0)
      std::memset(y, 0xff, static_cast<std::size_t>(bytes));  // NaN in each of its types
    else if (rank == team.rank)
      std::memcpy(y, x, static_cast<std::size_t>(bytes));
    else
      std::memcpy(
          y,
          epoch.in_half(parts.of[static_cast<std::size_t>(team.rank)] + static_cast<std::uint64_t>(rank * most_bytes),
                        bytes),
          static_cast<std::size_t>(bytes));
  }
  epoch.end();
  Traffic traffic;
  traffic.bytes = static_cast<double>(2 * team.world * rows * row_bytes);
  traffic.efficiency = memory_efficiency(call, 64);
  return traffic;
}

}  // namespace fake_cuda

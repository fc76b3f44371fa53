#include "engine/counters.hpp"

namespace kiln::engine {

Stats Counters::read() const noexcept {
  std::array<std::int64_t, 5> sums{};
  for (const Shard& shard : shards_)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += shard.origins[i].load(std::memory_order_relaxed);
  Stats stats;
  stats.hot = sums[static_cast<std::size_t>(Origin::hot)];
  stats.overlay = sums[static_cast<std::size_t>(Origin::overlay)];
  stats.base = sums[static_cast<std::size_t>(Origin::base)];
  stats.nearest = sums[static_cast<std::size_t>(Origin::nearest)];
  stats.default_ = sums[static_cast<std::size_t>(Origin::default_)];
  stats.constraint_fallbacks = constraint_fallbacks_.load(std::memory_order_relaxed);
  stats.stale = stale_.load(std::memory_order_relaxed);
  stats.quarantined = refused_cubins_.load(std::memory_order_relaxed);
  stats.tunes = tunes_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace kiln::engine

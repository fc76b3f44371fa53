#include "engine/counters.hpp"

namespace kiln::engine {

std::string_view to_string(Miss miss) noexcept {
  switch (miss) {
    case Miss::absent: return "absent";
    case Miss::unusable: return "unusable";
    case Miss::damaged: return "damaged";
    case Miss::unreadable: return "unreadable";
    case Miss::no_cubin: return "no_cubin";
    case Miss::refused_cubin: return "refused_cubin";
  }
  return "unknown";
}

Miss reason_of(const store::Counters& met, Miss otherwise) noexcept {
  return met.quarantined > 0 ? Miss::damaged : met.read_failures > 0 ? Miss::unreadable : otherwise;
}

Stats Counters::read() const noexcept {
  std::array<std::int64_t, origin_count> sums{};
  for (const Shard& shard : shards_)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += shard.origins[i].load(std::memory_order_relaxed);
  Stats stats;
  stats.hot = sums[static_cast<std::size_t>(Origin::hot)];
  stats.overlay = sums[static_cast<std::size_t>(Origin::overlay)];
  stats.base = sums[static_cast<std::size_t>(Origin::base)];
  stats.nearest = sums[static_cast<std::size_t>(Origin::nearest)];
  stats.model = sums[static_cast<std::size_t>(Origin::model)];
  stats.default_ = sums[static_cast<std::size_t>(Origin::default_)];
  stats.constraint_fallbacks = constraint_fallbacks_.load(std::memory_order_relaxed);
  stats.stale = stale_.load(std::memory_order_relaxed);
  const auto missed = [this](Miss miss) {
    return misses_[static_cast<std::size_t>(miss)].load(std::memory_order_relaxed);
  };
  stats.misses = {missed(Miss::absent),     missed(Miss::unusable), missed(Miss::damaged),
                  missed(Miss::unreadable), missed(Miss::no_cubin), missed(Miss::refused_cubin)};
  stats.quarantined = stats.misses.refused_cubin;
  stats.tunes = tunes_.load(std::memory_order_relaxed);
  return stats;
}

std::vector<store::Usage> Counters::usage() const {
  const Stats stats = read();
  std::vector<store::Usage> rows;
  const auto add = [&](const char* source, std::string_view key, std::int64_t count) {
    if (count > 0) rows.push_back({source, std::string(key), count, 0});
  };
  for (const auto& [origin, count] :
       {std::pair(Origin::hot, stats.hot), std::pair(Origin::overlay, stats.overlay),
        std::pair(Origin::base, stats.base), std::pair(Origin::nearest, stats.nearest),
        std::pair(Origin::model, stats.model), std::pair(Origin::default_, stats.default_)})
    add("launch", to_string(origin), count);
  for (std::size_t kind = 0; kind < miss_kinds; ++kind)
    add("miss", to_string(static_cast<Miss>(kind)), misses_[kind].load(std::memory_order_relaxed));
  return rows;
}

}  // namespace kiln::engine

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

std::int64_t Counters::launches(Origin origin) const noexcept {
  std::int64_t sum = 0;
  for (const Shard& shard : shards_)
    sum += shard.origins[static_cast<std::size_t>(origin)].load(std::memory_order_relaxed);
  return sum;
}

Stats Counters::read() const noexcept {
  Stats stats;
  stats.hot = launches(Origin::hot);
  stats.overlay = launches(Origin::overlay);
  stats.base = launches(Origin::base);
  stats.nearest = launches(Origin::nearest);
  stats.model = launches(Origin::model);
  stats.default_ = launches(Origin::default_);
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
  std::vector<store::Usage> rows;
  const auto add = [&](const char* source, std::string_view key, std::int64_t count) {
    if (count > 0) rows.push_back({source, std::string(key), count, 0});
  };
  for (std::size_t i = 0; i < origin_count; ++i)
    add("launch", to_string(static_cast<Origin>(i)), launches(static_cast<Origin>(i)));
  for (std::size_t kind = 0; kind < miss_kinds; ++kind)
    add("miss", to_string(static_cast<Miss>(kind)), misses_[kind].load(std::memory_order_relaxed));
  return rows;
}

}  // namespace kiln::engine

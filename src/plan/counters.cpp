#include "plan/counters.hpp"

namespace kiln::plan {

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
  const auto missed = [this](answer::Miss miss) {
    return misses_[static_cast<std::size_t>(miss)].load(std::memory_order_relaxed);
  };
  stats.misses = {missed(answer::Miss::absent),   missed(answer::Miss::unusable),
                  missed(answer::Miss::damaged),  missed(answer::Miss::unreadable),
                  missed(answer::Miss::no_cubin), missed(answer::Miss::refused_cubin)};
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
  for (std::size_t kind = 0; kind < answer::miss_kinds; ++kind)
    add("miss", to_string(static_cast<answer::Miss>(kind)), misses_[kind].load(std::memory_order_relaxed));
  return rows;
}

}  // namespace kiln::plan

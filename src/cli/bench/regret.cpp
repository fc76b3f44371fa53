#include "cli/bench/regret.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kiln::cli::bench {

RegretSummary summarise(std::span<const Regret> regrets) {
  if (regrets.empty()) return {};
  std::vector<const Regret*> rising;
  for (const Regret& each : regrets) rising.push_back(&each);
  std::stable_sort(rising.begin(), rising.end(),
                   [](const Regret* a, const Regret* b) { return a->regret < b->regret; });
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(rising.size())));
    return rising[std::max<std::size_t>(rank, 1) - 1]->regret;
  };
  return {static_cast<std::int64_t>(rising.size()), at(0.5), at(0.95), rising.back()->regret, rising.back()->length};
}

std::int64_t class_of(std::int64_t length) {
  const auto log2 = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(length, 1)))) - 1;
  return std::int64_t{1} << (log2 & ~1);
}

}  // namespace kiln::cli::bench

#include "plan/size_table.hpp"

#include <algorithm>
#include <set>

namespace kiln::plan {
namespace {

constexpr std::size_t most_bounds = 0xFF;  // of an axis: its word has 8 bits for their count

struct Cuts {
  std::size_t axis;
  std::vector<std::int64_t> highs;  // the last size of each slab, the bucket's edge included
};

std::vector<Cuts> cuts_between(const manifest::Op& op, const Problem& bucket,
                               const std::vector<manifest::Region>& regions) {
  std::vector<Cuts> cuts;
  for (const std::size_t axis : manifest::open_axes(op, bucket)) {
    std::set<std::int64_t> highs;
    for (const manifest::Region& region : regions) highs.insert({region.low.axes[axis] - 1, region.high.axes[axis]});
    highs.erase(highs.lower_bound(bucket.axes[axis]), highs.end());
    highs.erase(highs.begin(), highs.lower_bound(manifest::low_corner(op, bucket).axes[axis]));
    Cuts& last = cuts.emplace_back(Cuts{axis, {highs.begin(), highs.end()}});
    if (last.highs.size() > most_bounds) last.highs.resize(most_bounds);
    last.highs.push_back(bucket.axes[axis]);
  }
  return cuts;
}

/// Calls `visit` with the largest problem of each cell, the last axis's slabs innermost.
void each_cell(const std::vector<Cuts>& cuts, Problem at, const std::function<void(const Problem&)>& visit,
               std::size_t depth = 0) {
  if (depth == cuts.size()) return visit(at);
  for (const std::int64_t high : cuts[depth].highs) {
    at.axes[cuts[depth].axis] = high;
    each_cell(cuts, at, visit, depth + 1);
  }
}

/// Whether the slabs on both sides of bound `index` have the same plans.
bool parts_nothing(const std::vector<Cuts>& cuts, std::size_t which, std::size_t index, const Problem& bucket,
                   const std::function<const PlanState*(const Problem&)>& plan_of) {
  std::vector<Cuts> slab = cuts;
  slab[which].highs = {cuts[which].highs[index]};
  bool same = true;
  each_cell(slab, bucket, [&](const Problem& at) {
    Problem next = at;
    next.axes[cuts[which].axis] = cuts[which].highs[index + 1];
    same = same && plan_of(at) == plan_of(next);
  });
  return same;
}

}  // namespace

SizeTable::SizeTable(const manifest::Op& op, const Problem& bucket, const std::vector<manifest::Region>& regions,
                     const std::function<const PlanState*(const Problem&)>& plan_of) {
  std::vector<Cuts> cuts = cuts_between(op, bucket, regions);
  for (std::size_t which = 0; which < cuts.size(); ++which)
    for (std::size_t i = 0; i + 1 < cuts[which].highs.size();)
      if (parts_nothing(cuts, which, i, bucket, plan_of))
        cuts[which].highs.erase(cuts[which].highs.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
  std::erase_if(cuts, [](const Cuts& each) { return each.highs.size() == 1; });
  words_.push_back(cuts.size());
  std::size_t stride = 1;
  for (const Cuts& each : cuts) stride *= each.highs.size();
  for (const Cuts& each : cuts) {
    stride /= each.highs.size();
    words_.push_back(each.axis | (each.highs.size() - 1) << 8 | stride << 16);
    words_.insert(words_.end(), each.highs.begin(), each.highs.end() - 1);
  }
  each_cell(cuts, bucket, [&](const Problem& at) { words_.push_back(reinterpret_cast<std::uintptr_t>(plan_of(at))); });
}

std::size_t SizeTable::first_cell() const noexcept {
  std::size_t at = 1;
  for (std::uint64_t axis = 0; axis < words_.front(); ++axis) at += 1 + (words_[at] >> 8 & 0xFF);
  return at;
}

void SizeTable::make_all(const std::function<const PlanState*(PlanSlot&)>& make) {
  for (std::size_t at = first_cell(); at < words_.size(); ++at) {
    const std::atomic_ref cell(words_[at]);
    const std::uint64_t found = cell.load(std::memory_order_acquire);
    if ((found & unmade_bit) == 0) continue;
    if (const PlanState* plan = make(*reinterpret_cast<PlanSlot*>(found & ~unmade_bit)))
      cell.store(reinterpret_cast<std::uintptr_t>(plan), std::memory_order_release);
  }
}

std::vector<const PlanState*> SizeTable::cells() const {
  std::vector<const PlanState*> plans;
  for (std::size_t at = first_cell(); at < words_.size(); ++at)
    plans.push_back(reinterpret_cast<const PlanState*>(words_[at]));
  return plans;
}

}  // namespace kiln::plan

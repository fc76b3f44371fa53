// Which of a bucket's plans serves a real size. No lock, no allocation, no branch that depends on sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kiln/problem.hpp"
#include "manifest/region.hpp"

namespace kiln::engine {

struct PlanState;

/// A grid over the sizes of a bucket: on each axis where plans differ the bounds between them, and a plan for each cell. All of it lies in one
/// array, in the order in which it is read:
///   [axes] then for each axis [axis | bounds << 8 | stride << 16][bound ...], then [plan ...]
class SizeTable {
 public:
  /// `regions`: those that plans are for; they may overlap. `plan_of` is asked for the largest problem of each cell that they cut the bucket
  /// into, and must answer alike for all problems of a cell. Bounds that part nothing are left out.
  SizeTable(const manifest::Op& op, const Problem& bucket, const std::vector<manifest::Region>& regions,
            const std::function<const PlanState*(const Problem&)>& plan_of);

  /// Of the words of a table. Sizes outside the bucket count as the nearest inside.
  [[nodiscard]] static const PlanState& pick(const std::uint64_t* word, const Problem& problem) noexcept {
    std::size_t cell = 0;
    for (std::uint64_t axes = *word++; axes > 0; --axes) {
      const std::uint64_t head = *word++;
      const std::size_t bounds = head >> 8 & 0xFF;
      const std::int64_t size = problem.axes[head & 0xFF];
      std::size_t slab = 0;
      for (std::size_t i = 0; i < bounds; ++i) slab += size > static_cast<std::int64_t>(word[i]) ? 1 : 0;
      cell += slab * (head >> 16);
      word += bounds;
    }
    return *reinterpret_cast<const PlanState*>(word[cell]);
  }
  [[nodiscard]] const std::uint64_t* words() const noexcept { return words_.data(); }
  /// Whether one plan serves all sizes.
  [[nodiscard]] bool is_uniform() const noexcept { return words_.front() == 0; }
  /// Those of the cells, in their order; one may serve several.
  [[nodiscard]] std::vector<const PlanState*> cells() const;

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace kiln::engine

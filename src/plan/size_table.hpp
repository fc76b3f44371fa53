// Maps a real size to one of a bucket's plans. A look-up takes no lock, no allocation and no branch that depends on
// sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kiln/problem.hpp"
#include "manifest/region.hpp"

namespace kiln::plan {

struct PlanState;

/// A grid over the sizes of a bucket: the bounds between plans on each axis where they differ, and a plan for each
/// cell. One array of words holds it in the order of reading:
///   [axes] then for each axis [axis | bounds << 8 | stride << 16][bound ...], then [plan ...]
class SizeTable {
 public:
  /// `regions` may overlap; they divide the bucket into cells. `plan_of` is called with the largest problem of a cell
  /// and must give the same for all its problems. Bounds between equal plans are left out.
  SizeTable(const manifest::Op& op, const Problem& bucket, const std::vector<manifest::Region>& regions,
            const std::function<const PlanState*(const Problem&)>& plan_of);

  /// Looks up in words(). Sizes outside the bucket count as the nearest inside.
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
  /// The plan of each cell; one plan may serve several.
  [[nodiscard]] std::vector<const PlanState*> cells() const;

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace kiln::plan

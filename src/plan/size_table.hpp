// Maps a real size to one of a bucket's plans. A look-up takes no lock, no allocation and no branch that depends on
// sizes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kiln/problem.hpp"
#include "manifest/region.hpp"

namespace kiln::plan {

struct PlanState;
struct PlanSlot;

/// A grid over the sizes of a bucket: the bounds between plans on each axis where they differ, and a plan for each
/// cell. One array of words holds it in the order of reading:
///   [axes] then for each axis [axis | bounds << 8 | stride << 16][bound ...], then [plan ...]
class SizeTable {
 public:
  /// `regions` may overlap; they divide the bucket into cells. `plan_of` is called with the largest problem of a cell
  /// and must give the same for all its problems: a plan, or unmade(). Bounds between equal plans are left out.
  SizeTable(const manifest::Op& op, const Problem& bucket, const std::vector<manifest::Region>& regions,
            const std::function<const PlanState*(const Problem&)>& plan_of);

  /// Stands for the plan of a slot that is not made yet.
  [[nodiscard]] static const PlanState* unmade(const PlanSlot& slot) noexcept {
    return reinterpret_cast<const PlanState*>(reinterpret_cast<std::uintptr_t>(&slot) | unmade_bit);
  }

  /// Looks up in words(). Null where the plan is not made yet. Sizes outside the bucket count as the nearest inside.
  [[nodiscard]] static const PlanState* pick(const std::uint64_t* words, const Problem& problem) noexcept {
    const std::uint64_t found = std::atomic_ref(cell_of(words, problem)).load(std::memory_order_acquire);
    return (found & unmade_bit) != 0 ? nullptr : reinterpret_cast<const PlanState*>(found);
  }
  /// The slot that stands for the plan of these sizes. Null where the plan is made.
  [[nodiscard]] PlanSlot* unmade_at(const Problem& problem) const noexcept {
    const std::uint64_t found = std::atomic_ref(cell_of(words_.data(), problem)).load(std::memory_order_acquire);
    return (found & unmade_bit) == 0 ? nullptr : reinterpret_cast<PlanSlot*>(found & ~unmade_bit);
  }
  /// Puts the plan into the cell of these sizes, while other threads may look up.
  void set(const Problem& problem, const PlanState* plan) noexcept {
    std::atomic_ref(cell_of(words_.data(), problem))
        .store(reinterpret_cast<std::uintptr_t>(plan), std::memory_order_release);
  }
  /// Calls `make` with the slot of each cell whose plan is not made yet, and puts what it returns there. Null leaves
  /// the cell as it is.
  void make_all(const std::function<const PlanState*(PlanSlot&)>& make);
  [[nodiscard]] const std::uint64_t* words() const noexcept { return words_.data(); }
  /// Whether one plan serves all sizes.
  [[nodiscard]] bool is_uniform() const noexcept { return words_.front() == 0; }
  /// The plan of each cell; one plan may serve several.
  [[nodiscard]] std::vector<const PlanState*> cells() const;

 private:
  static constexpr std::uint64_t unmade_bit = 1;  // slots and plans are at even addresses
  [[nodiscard]] static std::uint64_t& cell_of(const std::uint64_t* word, const Problem& problem) noexcept {
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
    return const_cast<std::uint64_t&>(word[cell]);  // of words_, which is not const
  }

  [[nodiscard]] std::size_t first_cell() const noexcept;  // an index into words_, all of which follow

  std::vector<std::uint64_t> words_;
};

}  // namespace kiln::plan

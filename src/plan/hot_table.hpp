// Bucket -> plan. Readers take no lock and never wait; the caller serialises writers.
//
// Open addressing. Slots hold their buckets, so that a reader loads one cache line before the plan. A used slot keeps
// its bucket, and arrays live as long as the table. A reader of an old array finds everything that was published before
// it began.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kiln/problem.hpp"
#include "manifest/bucketing.hpp"

namespace kiln::plan {

struct PlanState;

class HotTable {
 public:
  /// For an op whose buckets have this form.
  explicit HotTable(manifest::BucketForm form = {});
  /// Returns the plan published for this bucket, or null. No lock, no allocation.
  [[nodiscard]] const PlanState* find(const manifest::BucketWords& bucket) const noexcept {
    const View slots(current_.load(std::memory_order_acquire));
    const Slot& slot = slots[slots.first(bucket.hash)];
    const PlanState* const plan = slot.plan.load(std::memory_order_acquire);
    if (plan == nullptr) [[unlikely]]
      return nullptr;
    if (!form_.equal(slot.words.data(), bucket.words.data())) [[unlikely]]
      return find_behind(slots, bucket);
    return plan;
  }
  [[nodiscard]] const PlanState* find(const Problem& bucket) const noexcept { return find(form_.words_of(bucket)); }
  [[nodiscard]] const manifest::BucketForm& form() const noexcept { return form_; }
  /// Publishes a plan in place of the bucket's earlier one. One writer at a time.
  void publish(const Problem& bucket, const PlanState* plan);
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Slots that a look-up of this bucket reads.
  [[nodiscard]] std::size_t probes(const Problem& bucket) const noexcept;

 private:
  struct alignas(64) Slot {                       // one cache line for up to six axes, two for all
    std::atomic<const PlanState*> plan{nullptr};  // null: free. Written after `words`
    decltype(manifest::BucketWords::words) words;
  };
  /// An array of slots in one word, which a reader loads at once. It holds the array's address, and in the free low
  /// bits the shift from a hash to an index. The array's size is a power of two.
  class View {
   public:
    explicit View(std::uintptr_t word) noexcept : word_(word) {}
    explicit View(const std::vector<Slot>& slots) noexcept
        : word_(reinterpret_cast<std::uintptr_t>(slots.data()) | (65U - std::bit_width(slots.size()))) {}
    [[nodiscard]] std::uintptr_t word() const noexcept { return word_; }
    [[nodiscard]] std::size_t first(std::uint64_t hash) const noexcept { return hash >> (word_ & free_bits); }
    [[nodiscard]] std::size_t after(std::size_t i) const noexcept { return i == first(~std::uint64_t{0}) ? 0 : i + 1; }
    [[nodiscard]] const Slot& operator[](std::size_t i) const noexcept {
      return reinterpret_cast<const Slot*>(word_ & ~free_bits)[i];
    }

   private:
    static constexpr std::uintptr_t free_bits = alignof(Slot) - 1;
    std::uintptr_t word_;
  };
  /// find() behind the first slot.
  [[nodiscard]] const PlanState* find_behind(View slots, const manifest::BucketWords& bucket) const noexcept;
  /// The bucket's slot, or the free one where it goes.
  [[nodiscard]] Slot& slot_of(std::vector<Slot>& slots, const manifest::BucketWords& bucket) const noexcept;
  void grow();

  std::atomic<std::uintptr_t> current_;  // a View
  manifest::BucketForm form_;
  std::size_t size_ = 0;
  std::deque<std::vector<Slot>> generations_;  // the last is current; earlier ones may still be read
};

}  // namespace kiln::plan

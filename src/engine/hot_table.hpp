// Bucket -> plan. Readers take no lock and never wait; writers are serialised by their caller.
//
// Open addressing over slots that hold their buckets themselves, so that a reader waits for one line on its way to the plan. A slot that
// is taken keeps its bucket, and arrays live as long as the table: a reader that holds an old one still finds everything that was
// published before it began.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "kiln/problem.hpp"
#include "manifest/bucketing.hpp"

namespace kiln::engine {

struct PlanState;

class HotTable {
 public:
  /// Of an op whose buckets have this form.
  explicit HotTable(manifest::BucketForm form = {});
  /// The plan published for this bucket, or null. No lock, no allocation.
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
  /// Publishes a plan, in place of any earlier one of the bucket. One writer at a time.
  void publish(const Problem& bucket, const PlanState* plan);
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// How many entries a reader looks at to find this bucket, or that it is not there.
  [[nodiscard]] std::size_t probes(const Problem& bucket) const noexcept;

 private:
  struct alignas(64) Slot {                       // of up to six axes: one line
    std::atomic<const PlanState*> plan{nullptr};  // null: free. Written after the words
    std::array<std::uint64_t, 1 + max_axes> words;
  };
  /// Where slots lie and how many there are, a power of two, in one word, so that a reader waits for none between the table and its slot: their
  /// address, and in the bits that it leaves free how many of a hash's are not looked at.
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
  /// The plan of a bucket that is not in the first slot looked at.
  [[nodiscard]] const PlanState* find_behind(View slots, const manifest::BucketWords& bucket) const noexcept;
  /// Where the bucket is, or is to go.
  [[nodiscard]] Slot& slot_of(std::vector<Slot>& slots, const manifest::BucketWords& bucket) const noexcept;
  void grow();

  std::atomic<std::uintptr_t> current_;  // a View
  manifest::BucketForm form_;
  std::size_t size_ = 0;
  std::deque<std::vector<Slot>> generations_;  // the last is current; earlier ones may still be read
};

}  // namespace kiln::engine

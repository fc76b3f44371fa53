// Bucket -> plan. Readers take no lock and never wait; writers are serialised by their caller.
//
// Open addressing over slots that hold their buckets themselves, so that a reader waits for one line on its way to the plan. A slot that
// is taken keeps its bucket, and arrays live as long as the table: a reader that holds an old one still finds everything that was
// published before it began.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kiln/problem.hpp"
#include "spec/bucketing.hpp"

namespace kiln::engine {

struct PlanState;

class HotTable {
 public:
  /// Of an op whose buckets have this form.
  explicit HotTable(spec::BucketForm form = {});
  /// The plan published for this bucket, or null. No lock, no allocation.
  [[nodiscard]] const PlanState* find(const spec::BucketWords& bucket) const noexcept {
    const Slots& slots = *current_.load(std::memory_order_acquire);
    for (std::size_t i = bucket.hash & slots.mask;; i = (i + 1) & slots.mask) {
      const Slot& slot = slots.slots[i];
      const PlanState* const plan = slot.plan.load(std::memory_order_acquire);
      if (plan == nullptr || form_.equal(slot.words.data(), bucket.words.data())) return plan;
    }
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
  struct Slots {
    explicit Slots(std::size_t count) : mask(count - 1), slots(count) {}
    std::size_t mask;
    std::vector<Slot> slots;
  };
  /// Where the bucket is, or is to go.
  [[nodiscard]] Slot& slot_of(Slots& slots, const spec::BucketWords& bucket) const noexcept;
  void grow();

  std::atomic<const Slots*> current_;
  spec::BucketForm form_;
  std::size_t size_ = 0;
  std::vector<std::unique_ptr<Slots>> generations_;  // the last is current; earlier ones may still be read
};

}  // namespace kiln::engine

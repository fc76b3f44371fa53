// Bucket -> plan. Readers take no lock and never wait; writers are serialised by their caller.
//
// Open addressing over atomic pointers. Entries are never moved or freed while the table lives: a reader that holds an old array
// still finds everything that was published before it began.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
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
    const Entry* entry = probe(*current_.load(std::memory_order_acquire), bucket);
    return entry == nullptr ? nullptr : entry->plan.load(std::memory_order_acquire);
  }
  [[nodiscard]] const PlanState* find(const Problem& bucket) const noexcept { return find(form_.words_of(bucket)); }
  /// Publishes a plan, in place of any earlier one of the bucket. One writer at a time.
  void publish(const Problem& bucket, const PlanState* plan);
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// How many entries a reader looks at to find this bucket, or that it is not there.
  [[nodiscard]] std::size_t probes(const Problem& bucket) const noexcept;

 private:
  struct alignas(64) Entry {  // of up to five axes: one cache line
    std::uint64_t hash;
    std::atomic<const PlanState*> plan;
    std::array<std::uint64_t, 1 + max_axes> words;
    Entry(const spec::BucketWords& bucket, const PlanState* p) : hash(bucket.hash), plan(p), words(bucket.words) {}
  };
  struct Slots {
    explicit Slots(std::size_t count) : mask(count - 1), slots(count) {}
    std::size_t mask;
    std::vector<std::atomic<Entry*>> slots;
  };
  [[nodiscard]] Entry* probe(const Slots& slots, const spec::BucketWords& bucket) const noexcept {
    for (std::size_t i = bucket.hash & slots.mask;; i = (i + 1) & slots.mask) {
      Entry* entry = slots.slots[i].load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (form_.equal(entry->words.data(), bucket.words.data())) return entry;
    }
  }
  static void place(Slots& slots, Entry& entry) noexcept;
  void grow();

  std::atomic<const Slots*> current_;
  spec::BucketForm form_;
  std::deque<Entry> entries_;
  std::vector<std::unique_ptr<Slots>> generations_;  // the last is current; earlier ones may still be read
};

}  // namespace kiln::engine

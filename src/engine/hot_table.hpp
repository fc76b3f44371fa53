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

namespace kiln::engine {

struct PlanState;

std::uint64_t hash_of(const Problem& bucket) noexcept;

class HotTable {
 public:
  HotTable();
  /// The plan published for this bucket, or null. No lock, no allocation.
  [[nodiscard]] const PlanState* find(const Problem& bucket) const noexcept;
  /// Publishes a plan, in place of any earlier one of the bucket. One writer at a time.
  void publish(const Problem& bucket, const PlanState* plan);
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Entry {
    Problem bucket;
    std::uint64_t hash;
    std::atomic<const PlanState*> plan;
    Entry(const Problem& b, std::uint64_t h, const PlanState* p) : bucket(b), hash(h), plan(p) {}
  };
  struct Slots {
    explicit Slots(std::size_t count) : mask(count - 1), slots(count) {}
    std::size_t mask;
    std::vector<std::atomic<Entry*>> slots;
  };
  static Entry* probe(const Slots& slots, const Problem& bucket, std::uint64_t hash) noexcept;
  static void place(Slots& slots, Entry& entry) noexcept;
  void grow();

  std::deque<Entry> entries_;
  std::vector<std::unique_ptr<Slots>> generations_;  // the last is current; earlier ones may still be read
  std::atomic<const Slots*> current_;
};

}  // namespace kiln::engine

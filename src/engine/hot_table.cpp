#include "engine/hot_table.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kiln::engine {
namespace {

constexpr std::size_t first_slots = 64;

}  // namespace

std::uint64_t hash_of(const Problem& bucket) noexcept {
  static_assert(std::has_unique_object_representations_v<Problem>, "the hash reads the bytes");
  return XXH3_64bits(&bucket, sizeof bucket);
}

HotTable::HotTable() {
  generations_.push_back(std::make_unique<Slots>(first_slots));
  current_.store(generations_.back().get(), std::memory_order_release);
}

HotTable::Entry* HotTable::probe(const Slots& slots, const Problem& bucket, std::uint64_t hash) noexcept {
  for (std::size_t i = hash & slots.mask;; i = (i + 1) & slots.mask) {
    Entry* entry = slots.slots[i].load(std::memory_order_acquire);
    if (entry == nullptr || (entry->hash == hash && entry->bucket == bucket)) return entry;
  }
}

const PlanState* HotTable::find(const Problem& bucket) const noexcept {
  const Entry* entry = probe(*current_.load(std::memory_order_acquire), bucket, hash_of(bucket));
  return entry == nullptr ? nullptr : entry->plan.load(std::memory_order_acquire);
}

void HotTable::place(Slots& slots, Entry& entry) noexcept {
  std::size_t i = entry.hash & slots.mask;
  while (slots.slots[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & slots.mask;
  slots.slots[i].store(&entry, std::memory_order_release);
}

void HotTable::grow() {
  auto larger = std::make_unique<Slots>(2 * generations_.back()->slots.size());
  for (Entry& entry : entries_) place(*larger, entry);
  current_.store(larger.get(), std::memory_order_release);
  generations_.push_back(std::move(larger));
}

void HotTable::publish(const Problem& bucket, const PlanState* plan) {
  const std::uint64_t hash = hash_of(bucket);
  if (Entry* entry = probe(*generations_.back(), bucket, hash)) {
    entry->plan.store(plan, std::memory_order_release);
    return;
  }
  if (2 * (entries_.size() + 1) > generations_.back()->slots.size()) grow();
  place(*generations_.back(), entries_.emplace_back(bucket, hash, plan));
}

}  // namespace kiln::engine

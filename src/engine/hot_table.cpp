#include "engine/hot_table.hpp"

namespace kiln::engine {
namespace {

constexpr std::size_t first_slots = 64;

}  // namespace

HotTable::HotTable(spec::BucketForm form) : form_(form) {
  generations_.push_back(std::make_unique<Slots>(first_slots));
  current_.store(generations_.back().get(), std::memory_order_release);
}

void HotTable::place(Slots& slots, Entry& entry) noexcept {
  std::size_t i = entry.hash & slots.mask;
  while (slots.slots[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & slots.mask;
  slots.slots[i].store(&entry, std::memory_order_release);
}

void HotTable::grow() {
  auto larger = std::make_unique<Slots>(2 * generations_.back()->slots.size());
  for (Entry& entry : entries_) place(*larger, entry);
  generations_.push_back(std::move(larger));
  current_.store(generations_.back().get(), std::memory_order_release);
}

void HotTable::publish(const Problem& bucket, const PlanState* plan) {
  const spec::BucketWords words = form_.words_of(bucket);
  if (Entry* entry = probe(*generations_.back(), words)) {
    entry->plan.store(plan, std::memory_order_release);
    return;
  }
  if (2 * (entries_.size() + 1) > generations_.back()->slots.size()) grow();
  place(*generations_.back(), entries_.emplace_back(words, plan));
}

std::size_t HotTable::probes(const Problem& bucket) const noexcept {
  const spec::BucketWords words = form_.words_of(bucket);
  const Slots& slots = *current_.load(std::memory_order_acquire);
  for (std::size_t step = 0;; ++step) {
    const Entry* entry = slots.slots[(words.hash + step) & slots.mask].load(std::memory_order_acquire);
    if (entry == nullptr || (entry->hash == words.hash && form_.equal(entry->words.data(), words.words.data())))
      return step + 1;
  }
}

}  // namespace kiln::engine

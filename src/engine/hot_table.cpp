#include "engine/hot_table.hpp"

namespace kiln::engine {
namespace {

constexpr std::size_t first_slots = 4;  // half a KiB: most tables stay small

}  // namespace

HotTable::HotTable(spec::BucketForm form) : form_(form) {
  generations_.push_back(std::make_unique<Slots>(first_slots));
  current_.store(generations_.back().get(), std::memory_order_release);
}

HotTable::Slot& HotTable::slot_of(Slots& slots, const spec::BucketWords& bucket) const noexcept {
  std::size_t i = bucket.hash & slots.mask;
  while (slots.slots[i].plan.load(std::memory_order_relaxed) != nullptr &&
         !form_.equal(slots.slots[i].words.data(), bucket.words.data()))
    i = (i + 1) & slots.mask;
  return slots.slots[i];
}

void HotTable::grow() {
  auto larger = std::make_unique<Slots>(2 * generations_.back()->slots.size());
  for (const Slot& each : generations_.back()->slots) {
    const PlanState* const plan = each.plan.load(std::memory_order_relaxed);
    if (plan == nullptr) continue;
    Slot& slot = slot_of(*larger, {each.words, form_.hash(each.words.data())});
    slot.words = each.words;
    slot.plan.store(plan, std::memory_order_relaxed);
  }
  generations_.push_back(std::move(larger));
  current_.store(generations_.back().get(), std::memory_order_release);
}

void HotTable::publish(const Problem& bucket, const PlanState* plan) {
  const spec::BucketWords words = form_.words_of(bucket);
  Slot* slot = &slot_of(*generations_.back(), words);
  if (slot->plan.load(std::memory_order_relaxed) == nullptr) {
    if (2 * (size_ + 1) > generations_.back()->slots.size()) {
      grow();
      slot = &slot_of(*generations_.back(), words);
    }
    slot->words = words.words;
    ++size_;
  }
  slot->plan.store(plan, std::memory_order_release);
}

std::size_t HotTable::probes(const Problem& bucket) const noexcept {
  const spec::BucketWords words = form_.words_of(bucket);
  const Slots& slots = *current_.load(std::memory_order_acquire);
  for (std::size_t step = 0;; ++step) {
    const Slot& slot = slots.slots[(words.hash + step) & slots.mask];
    if (slot.plan.load(std::memory_order_acquire) == nullptr || form_.equal(slot.words.data(), words.words.data()))
      return step + 1;
  }
}

}  // namespace kiln::engine

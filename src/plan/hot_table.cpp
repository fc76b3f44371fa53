#include "plan/hot_table.hpp"

namespace kiln::plan {
namespace {

constexpr std::size_t first_slots = 4;  // half a KiB: most tables stay small

}  // namespace

HotTable::HotTable(manifest::BucketForm form) : form_(form) {
  current_.store(View(generations_.emplace_back(first_slots)).word(), std::memory_order_release);
}

HotTable::Slot& HotTable::slot_of(std::vector<Slot>& slots, const manifest::BucketWords& bucket) const noexcept {
  const View view(slots);
  std::size_t i = view.first(bucket.hash);
  while (slots[i].plan.load(std::memory_order_relaxed) != nullptr &&
         !form_.equal(slots[i].words.data(), bucket.words.data()))
    i = view.after(i);
  return slots[i];
}

void HotTable::grow() {
  std::vector<Slot> larger(2 * generations_.back().size());
  for (const Slot& each : generations_.back()) {
    const PlanState* const plan = each.plan.load(std::memory_order_relaxed);
    if (plan == nullptr) continue;
    Slot& slot = slot_of(larger, {each.words, form_.hash(each.words.data())});
    slot.words = each.words;
    slot.plan.store(plan, std::memory_order_relaxed);
  }
  current_.store(View(generations_.emplace_back(std::move(larger))).word(), std::memory_order_release);
}

void HotTable::publish(const Problem& bucket, const PlanState* plan) {
  const manifest::BucketWords words = form_.words_of(bucket);
  Slot* slot = &slot_of(generations_.back(), words);
  if (slot->plan.load(std::memory_order_relaxed) == nullptr) {
    if (2 * (size_ + 1) > generations_.back().size()) {
      grow();
      slot = &slot_of(generations_.back(), words);
    }
    slot->words = words.words;
    ++size_;
  }
  slot->plan.store(plan, std::memory_order_release);
}

const PlanState* HotTable::find_behind(View slots, const manifest::BucketWords& bucket) const noexcept {
  for (std::size_t i = slots.after(slots.first(bucket.hash));; i = slots.after(i)) {
    const PlanState* const plan = slots[i].plan.load(std::memory_order_acquire);
    if (plan == nullptr || form_.equal(slots[i].words.data(), bucket.words.data())) return plan;
  }
}

std::size_t HotTable::probes(const Problem& bucket) const noexcept {
  const manifest::BucketWords words = form_.words_of(bucket);
  const View slots(current_.load(std::memory_order_acquire));
  std::size_t i = slots.first(words.hash);
  for (std::size_t probes = 1;; ++probes, i = slots.after(i))
    if (slots[i].plan.load(std::memory_order_acquire) == nullptr ||
        form_.equal(slots[i].words.data(), words.words.data()))
      return probes;
}

}  // namespace kiln::plan

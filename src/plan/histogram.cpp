#include "plan/histogram.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <thread>

#include "kiln/error.hpp"
#include "manifest/bucketing.hpp"
#include "manifest/shortage.hpp"

namespace kiln::plan {
namespace {

constexpr std::uint64_t free_slot = 0;
constexpr std::uint64_t being_written = 1;
constexpr std::size_t longest_probe = 64;

std::uint64_t tag_of(std::uint32_t op, const Problem& problem) noexcept {
  const std::uint64_t hash = manifest::ProblemHash{}(problem) + op * 0x9E3779B97F4A7C15;
  return hash <= being_written ? hash + 2 : hash;
}

}  // namespace

void* map_zeros(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) return memory;
  throw Error(ErrorKind::out_of_memory,
              fmt::format("{} bytes cannot be mapped to count launches: {}", bytes, manifest::refusal_text(errno)));
}

// A writer registers, then checks again which table is active. take() changes the active table, then waits for its
// writers. Under sequential consistency at least one of the two sees the other.
Histogram::Table& Histogram::enter() noexcept {
  for (;;) {
    const std::size_t index = active_.load();
    Table& table = tables_[index];
    table.writers.fetch_add(1);
    if (active_.load() == index) return table;
    leave(table);
  }
}

/// Two threads that add a new problem at once may claim two slots. Readers add rows of one problem up.
Histogram::Slot* Histogram::find_or_claim(Table& table, std::uint32_t op, const Problem& problem) noexcept {
  const std::uint64_t tag = tag_of(op, problem);
  for (std::size_t step = 0; step < longest_probe; ++step) {
    Slot& slot = table.slots[(tag + step) % capacity];
    std::uint64_t seen = slot.shared_tag().load(std::memory_order_acquire);
    if (seen == free_slot &&
        slot.shared_tag().compare_exchange_strong(seen, being_written, std::memory_order_acquire)) {
      slot.op = op;
      slot.problem = problem;
      slot.shared_tag().store(tag, std::memory_order_release);
      table.used.fetch_add(1, std::memory_order_relaxed);
      return &slot;
    }
    if (seen == tag && slot.op == op && slot.problem == problem) return &slot;
  }
  return nullptr;
}

void Histogram::add(std::uint32_t op, const Problem& problem) noexcept {
  Stage& stage = stages_[jit::thread_number()];
  if (stage.shared_busy().exchange(
          true, std::memory_order_acquire)) {  // used by take(), or by another thread of the shared number
    add_to_table({op, problem, stride});
    return;
  }
  Row& row = stage.rows[tag_of(op, problem) % stage.rows.size()];
  if (row.launches != 0 && row.op == op && row.problem == problem) {
    row.launches += stride;
  } else {
    if (row.launches != 0) add_to_table(row);
    row = {op, problem, stride};
  }
  stage.shared_busy().store(false, std::memory_order_release);
}

void Histogram::add_to_table(const Row& row) noexcept {
  Table& table = enter();
  if (Slot* slot = find_or_claim(table, row.op, row.problem))
    slot->shared_launches().fetch_add(row.launches, std::memory_order_relaxed);
  else
    lost_.fetch_add(row.launches, std::memory_order_relaxed);
  leave(table);
}

void Histogram::empty(Stage& stage) noexcept {
  while (stage.shared_busy().exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  for (Row& row : stage.rows) {
    if (row.launches != 0) add_to_table(row);
    row.launches = 0;
  }
  stage.shared_busy().store(false, std::memory_order_release);
}

std::vector<Histogram::Row> Histogram::take() {
  for (Stage& stage : stages_) empty(stage);
  Table& table = tables_[active_.load()];
  active_.store(1 - active_.load());
  while (table.writers.load() != 0) std::this_thread::yield();
  std::vector<Row> rows;
  if (table.used.load(std::memory_order_relaxed) == 0) return rows;
  for (Slot& slot : table.slots) {
    if (slot.shared_tag().load(std::memory_order_relaxed) == free_slot) continue;
    rows.push_back({slot.op, slot.problem, slot.shared_launches().exchange(0, std::memory_order_relaxed)});
    slot.shared_tag().store(free_slot, std::memory_order_relaxed);
  }
  table.used.store(0, std::memory_order_relaxed);
  return rows;
}

bool Histogram::is_half_full() const noexcept {
  return 2 * tables_[active_.load()].used.load(std::memory_order_relaxed) > capacity;
}

}  // namespace kiln::plan

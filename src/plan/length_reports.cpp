#include "plan/length_reports.hpp"

#include <cstring>

#include "kiln/error.hpp"

namespace kiln::plan {
namespace {

constexpr unsigned portable_and_mapped = 3;  // CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, macros of cuda.h

}  // namespace

// Deferred where no thread can be begun.
LengthReports::LengthReports(const cuda::Context& context, std::size_t ops)
    : context_(context),
      ops_(ops),
      first_try_(std::async(std::launch::async | std::launch::deferred, [this] { allocate(); })) {}

void LengthReports::open() {
  if (words_.load(std::memory_order_acquire) != nullptr) return;
  const std::lock_guard lock(mutex_);
  if (first_try_.valid()) {
    try {
      return first_try_.get();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the next try reports it
    }
  }
  if (words_.load(std::memory_order_relaxed) == nullptr) allocate();
}

void LengthReports::allocate() {
  const cuda::Context::Scope scope(context_);
  const cuda::RelaxedCapture relaxed;
  const std::size_t bytes = ops_ * max_axes * sizeof(std::uint64_t);
  void* memory = nullptr;
  cuda::check(cuda::Driver::get().cuMemHostAlloc(&memory, bytes, portable_and_mapped),
              "allocating host memory for reports of lengths");
  std::memset(memory, 0, bytes);
  words_.store(static_cast<std::uint64_t*>(memory), std::memory_order_release);
}

LengthReports::~LengthReports() {
  first_try_ = {};  // waits for its thread
  std::uint64_t* words = words_.load(std::memory_order_acquire);
  if (words == nullptr) return;
  const cuda::Context::Guest guest(context_);
  const cuda::RelaxedCapture relaxed;
  cuda::Driver::find()->cuMemFreeHost(words);
}

std::optional<LengthReports::Report> LengthReports::take() noexcept {
  std::uint64_t* words = words_.load(std::memory_order_acquire);
  if (words == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < ops_ * max_axes; ++i) {
    const std::uint64_t word = std::atomic_ref(words[i]).exchange(0, std::memory_order_acquire);
    if (word == 0) continue;
    return Report{i / max_axes, i % max_axes, static_cast<std::int32_t>(word & 0xffffffffU),
                  static_cast<std::int64_t>(word >> 32)};
  }
  return std::nullopt;
}

}  // namespace kiln::plan

#include "cuda/gate.hpp"

#include <string>
#include <system_error>

#include "cuda/device.hpp"
#include "cuda/library.hpp"
#include "manifest/no_signals.hpp"

namespace kiln::cuda {
namespace {

constexpr unsigned mapped = 2;  // CU_MEMHOSTALLOC_DEVICEMAP, which cuda.h has as a macro

bool launches_block() {
  const std::string chosen = environment("CUDA_LAUNCH_BLOCKING");
  return !chosen.empty() && chosen != "0";
}

}  // namespace

void Gate::allocate() {
  const Driver& driver = Driver::get();
  if (driver.cuStreamWaitValue32_v2 == nullptr || launches_block()) return;
  void* memory = nullptr;
  check(driver.cuMemHostAlloc(&memory, sizeof *word_, mapped), "allocating host memory");
  word_ = static_cast<std::uint32_t*>(memory);
  open();
}

Gate::~Gate() {
  if (word_ == nullptr) return;
  open();
  Driver::find()->cuMemFreeHost(word_);
}

void Gate::close(CUstream stream) {
  if (word_ == nullptr) return;
  // With unified addressing, which every 64-bit system has, host and device use the same address.
  const auto address = reinterpret_cast<CUdeviceptr>(word_);
  const CUresult result = Driver::get().cuStreamWaitValue32_v2(stream, address, turn_ + 1, CU_STREAM_WAIT_VALUE_GEQ);
  if (result == CUDA_ERROR_NOT_SUPPORTED) return;
  check(result, "blocking a stream");
  ++turn_;
}

void Gate::open() noexcept {
  if (word_ != nullptr) std::atomic_ref<std::uint32_t>(*word_).store(turn_.load());
}

Gate::Watch::Watch(Gate& gate) {
  const auto watch = [this, &gate] {
    std::unique_lock lock(mutex_);
    if (ended_.wait_for(lock, gate.longest_, [this] { return has_ended_; })) return;
    has_opened_ = true;
    gate.open();
  };
  try {
    const manifest::NoSignals no_signals;
    thread_ = std::thread(watch);
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): is_there() tells
  }
}

bool Gate::Watch::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_all();
  if (!is_there()) return false;
  thread_.join();
  return !has_opened_;
}

}  // namespace kiln::cuda

#include "cuda/gate.hpp"

#include "cuda/device.hpp"

namespace kiln::cuda {
namespace {

constexpr unsigned mapped = 2;  // CU_MEMHOSTALLOC_DEVICEMAP, which cuda.h has as a macro

}  // namespace

Gate::Gate() {
  const Driver& driver = Driver::get();
  if (driver.cuStreamWaitValue32_v2 == nullptr) return;
  void* memory = nullptr;
  check(driver.cuMemHostAlloc(&memory, sizeof *word_, mapped), "allocating host memory");
  word_ = static_cast<volatile std::uint32_t*>(memory);
  *word_ = turn_;
}

Gate::~Gate() {
  if (word_ == nullptr) return;
  open();
  Driver::find()->cuMemFreeHost(const_cast<std::uint32_t*>(word_));
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
  if (word_ != nullptr) *word_ = turn_;
}

}  // namespace kiln::cuda

#include "engine/thread_stream.hpp"

#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/device.hpp"

namespace kiln::engine {
namespace {

struct Number {
  std::uintptr_t value = 0;
  CUcontext context = nullptr;  // in which the stream was used, and where workspaces of this number stay
  bool several = false;         // used in more than one context
};

struct Numbers {
  std::mutex mutex;
  std::uintptr_t next = 5;  // past the handles of the default streams
  std::vector<Number> idle;
};

/// One for all engines of the process. Never destroyed: threads may end after statics are destroyed.
Numbers& numbers() {
  static auto& all = *new Numbers;
  return all;
}

/// Whether this thread's stream in the context is idle. False unless the context is current: another one may have been destroyed.
bool is_idle_in(CUcontext context) noexcept {
  constexpr std::uintptr_t per_thread_handle = 2;
  const auto stream = reinterpret_cast<CUstream>(per_thread_handle);
  const cuda::Driver* driver = cuda::Driver::find();
  CUcontext current = nullptr;
  if (driver == nullptr || driver->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) return false;
  const cuda::RelaxedCapture relaxed;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE &&
         driver->cuStreamQuery(stream) == CUDA_SUCCESS;
}

constinit thread_local Number own_number;

/// Gives the number back when its thread ends.
struct Holder {
  Holder() noexcept = default;
  ~Holder() {
    const Number number = std::exchange(
        own_number, Number{});  // destructors of the thread's other objects that still launch take a new number
    if (number.context == nullptr || number.several || cuda::is_forked() || !is_idle_in(number.context)) return;
    try {
      const std::lock_guard lock(numbers().mutex);
      numbers().idle.push_back(number);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the number is used no more
    }
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
};

void take() noexcept {
  {
    const std::lock_guard lock(numbers().mutex);
    auto& idle = numbers().idle;
    if (idle.empty()) {
      own_number = {numbers().next, nullptr, false};
      numbers().next += 2;
    } else {
      own_number = idle.back();
      idle.pop_back();
    }
  }
  thread_local const Holder holder;
  static_cast<void>(holder);
}

}  // namespace

std::uintptr_t thread_stream() noexcept {
  if (own_number.value == 0) [[unlikely]]
    take();
  return own_number.value;
}

void note_thread_stream() noexcept {
  static_cast<void>(thread_stream());
  CUcontext current = nullptr;
  if (cuda::Driver::get().cuCtxGetCurrent(&current) != CUDA_SUCCESS) return;
  own_number.several = own_number.several || (own_number.context != nullptr && own_number.context != current);
  own_number.context = current;
}

}  // namespace kiln::engine

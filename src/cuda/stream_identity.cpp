#include "cuda/stream_identity.hpp"

#include <atomic>
#include <limits>

#include "cuda/stream_owner.hpp"

namespace kiln::cuda {
namespace {

/// Null and CU_STREAM_LEGACY. A capture never takes it, and cuStreamGetId would end the captures that are in order with it.
bool is_legacy(CUstream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) <= 1; }

/// The threads' own default streams have one handle, and several of them may join one capture. Odd, as no handle is.
std::uint64_t number_of_thread() noexcept {
  static std::atomic<std::uint64_t> last{1};
  thread_local const std::uint64_t number = last.fetch_add(2, std::memory_order_relaxed) + 2;
  return number;
}

}  // namespace

/// cuStreamGetId ends the capture of the stream that it is asked about, in each of the modes, so it is asked last.
CUresult identify(CUstream stream, StreamIdentity& identity) noexcept {
  if (is_legacy(stream)) {
    identity = {std::numeric_limits<std::uint64_t>::max(), 0};
    return CUDA_SUCCESS;
  }
  const Driver& driver = *Driver::find();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (const CUresult result = driver.cuStreamIsCapturing(stream, &status); result != CUDA_SUCCESS) return result;
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) [[likely]] {
    unsigned long long number = 0;
    const CUresult result = driver.cuStreamGetId(stream, &number);
    identity = {number, 0};
    return result;
  }
  std::uint64_t capture = 0;
  const CUresult result = driver.cuStreamGetCaptureInfo_v2(stream, &status, &capture, nullptr, nullptr, nullptr);
  if (result != CUDA_SUCCESS) return result;
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  identity = {is_per_thread(stream) ? number_of_thread() : reinterpret_cast<std::uintptr_t>(stream), capture + 1};
  return CUDA_SUCCESS;
}

}  // namespace kiln::cuda

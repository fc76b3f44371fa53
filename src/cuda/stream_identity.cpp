#include "cuda/stream_identity.hpp"

#include <limits>

namespace kiln::cuda {
namespace {

/// Null and CU_STREAM_LEGACY. A capture never takes it, and cuStreamGetId would end the captures that are in order with it.
bool is_legacy(CUstream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) <= 1; }

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
  identity = {reinterpret_cast<std::uintptr_t>(stream), capture + 1};
  return CUDA_SUCCESS;
}

}  // namespace kiln::cuda

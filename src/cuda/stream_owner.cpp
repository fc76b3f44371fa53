#include "cuda/stream_owner.hpp"

#include <atomic>
#include <limits>

#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

constexpr int unknown_device = -1;

int device_of(CUcontext context) {
  const Driver& driver = Driver::get();
  CUdevice device = unknown_device;
  if (driver.cuCtxGetDevice == nullptr || driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return unknown_device;
  if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) device = unknown_device;
  driver.cuCtxPopCurrent_v2(&context);
  return device;
}

std::string sentence(const Context& context, int owner) {
  const int own = context.info().ordinal;
  const std::string whose = owner == unknown_device ? "of another context"
                            : owner == own
                                ? "of another context of device " + std::to_string(owner) + ", not its primary one"
                                : "of device " + std::to_string(owner);
  return "the stream is " + whose + " and the engine's is the primary context of device " + std::to_string(own) +
         "; launch on a stream of that, or make an engine for the stream's device (Options::device)";
}

struct Owner {
  CUcontext context = nullptr;
  CUresult result = CUDA_SUCCESS;
};

Owner owner_of(CUstream stream) {
  Owner owner;
  owner.result = Driver::get().cuStreamGetCtx(stream, &owner.context);
  return owner;
}

std::string unknown(CUresult result) {
  const std::string code = result == CUDA_ERROR_INVALID_HANDLE ? "" : " (" + describe(result) + ")";
  return "the driver does not know the stream" + code + ": it was destroyed, or is no stream";
}

/// Null and CU_STREAM_LEGACY. A capture never takes it, and cuStreamGetId would end the captures that are in order with
/// it.
bool is_legacy(CUstream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) <= 1; }

/// The threads' own default streams have one handle, and several of them may join one capture. Odd, as no handle is.
std::uint64_t number_of_thread() noexcept {
  static std::atomic<std::uint64_t> last{1};
  thread_local const std::uint64_t number = last.fetch_add(2, std::memory_order_relaxed) + 2;
  return number;
}

}  // namespace

std::optional<std::string> why_foreign(const Context& context, CUstream stream) {
  if (is_default(stream)) return std::nullopt;
  const Owner owner = owner_of(stream);
  if (owner.result != CUDA_SUCCESS) return unknown(owner.result);
  if (owner.context == context.handle()) return std::nullopt;
  return sentence(context, device_of(owner.context));
}

void require_own(const Context& context, CUstream stream) {
  if (is_default(stream)) return;
  const Owner owner = owner_of(stream);
  if (owner.result == CUDA_ERROR_INVALID_HANDLE) throw Error(ErrorKind::bad_input, unknown(owner.result));
  if (owner.result != CUDA_SUCCESS || owner.context == context.handle()) return;
  const int device = device_of(owner.context);
  if (device == unknown_device || device == context.info().ordinal) return;
  throw Error(ErrorKind::bad_input, sentence(context, device));
}

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

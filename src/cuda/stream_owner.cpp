#include "cuda/stream_owner.hpp"

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
  return "the driver does not know the stream, " + describe(result) + ": it was destroyed, or is no stream";
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

}  // namespace kiln::cuda

// Maps a failed launch to kiln::Error.
#include <fmt/format.h>

#include "cuda/stream_owner.hpp"
#include "engine/op_state.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {

void OpState::refuse(const PlanState& plan, CUresult result, CUstream stream) const {
  const std::string what = fmt::format("launching {} {} {}: {}", op.name, plan.answer.implementation->name, plan.config,
                                       cuda::describe(result));
  switch (result) {
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      throw Error(
          ErrorKind::capture,
          what +
              "; the legacy default stream takes no work while a stream that is in order with it captures: launch on a stream made with CU_STREAM_NON_BLOCKING");
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
      throw Error(ErrorKind::capture, what + "; the capture takes no more work: end it and begin another");
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: {
      const cuda::Context::Guest guest(engine.context);
      if (const auto why = cuda::why_foreign(engine.context, stream))
        throw Error(ErrorKind::bad_input, what + "; " + *why);
      throw Error(
          ErrorKind::driver_failed,
          what +
              "; the stream is not at fault: the device was reset (cudaDeviceReset) since the plan was made, and the plan went with its context; make a new Engine");
    }
    default: break;
  }
  const ErrorKind kind = result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::out_of_memory : ErrorKind::driver_failed;
  throw Error(kind, what);
}

}  // namespace kiln::engine

#include "engine/capture_guard.hpp"

#include "cuda/stream_owner.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {

bool CaptureGuard::captures(CUstream stream) const {
  const cuda::Context::Scope scope(context_);
  cuda::require_own(context_, stream);
  const cuda::CaptureState state = cuda::capture_state(stream);
  if (state == cuda::CaptureState::excluded)
    throw Error(
        ErrorKind::capture,
        op_ +
            ": a launch on the legacy default stream would end the capture of a stream that is in order with it; launch on a stream made with CU_STREAM_NON_BLOCKING, or after the capture");
  return state == cuda::CaptureState::capturing;
}

void CaptureGuard::note_missed(const Problem& bucket, CUstream stream) {
  const cuda::Context::Scope scope(context_);
  const std::lock_guard lock(mutex_);
  missed_.try_emplace(bucket, 0, false).first->second.make(stream);
}

CUdeviceptr CaptureGuard::make_workspace(Workspaces& workspaces, CUstream stream) const {
  if (captures(stream)) return 0;
  const cuda::Context::Scope scope(context_);
  const cuda::RelaxedCapture relaxed;
  return workspaces.make(stream);
}

void CaptureGuard::make_workspaces(const BucketPlans& plans, CUstream stream) {
  const cuda::Context::Scope scope(context_);
  const cuda::RelaxedCapture relaxed;
  plans.make_workspaces(stream);  // also notes the stream, for plans that replace these
  make_missed_workspaces(plans);
}

void CaptureGuard::make_missed_workspaces(const BucketPlans& plans) {
  const Workspaces* streams = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto missed = missed_.find(plans.resolution.bucket);
    if (missed != missed_.end()) streams = &missed->second;
  }
  if (streams == nullptr) return;
  try {
    plans.make_workspaces_as(*streams);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory)
      throw;  // the caller's own stream lacks nothing; captures on the others get Error(capture)
  }
}

}  // namespace kiln::engine

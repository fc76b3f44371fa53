#include "engine/plan_state.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {

CUdeviceptr Workspaces::find(CUstream stream) const noexcept {
  for (const Block* block = head_.load(std::memory_order_acquire); block != nullptr; block = block->next)
    if (block->stream == stream) return block->buffer.pointer();
  return 0;
}

CUdeviceptr Workspaces::make(CUstream stream) {
  if (bytes_ == 0) return 0;
  const std::lock_guard lock(mutex_);
  if (const CUdeviceptr existing = find(stream)) return existing;
  if (cuda::is_capturing(stream))
    throw Error(
        ErrorKind::capture,
        "the plan has no workspace for this stream yet, and nothing is allocated while it captures; call Op::plan(problem, stream) before the capture");
  cuda::Buffer buffer(bytes_);
  if (zeroed_) buffer.fill_bytes(0, stream);
  Block& block = blocks_.emplace_back(Block{stream, std::move(buffer), head_.load(std::memory_order_relaxed)});
  head_.store(&block, std::memory_order_release);
  return block.buffer.pointer();
}

void PlanState::make_workspaces(CUstream stream) const {
  workspaces->make(stream);
  for (const LowerPart& part : lower_parts) part.plan->make_workspaces(stream);
}

}  // namespace kiln::engine

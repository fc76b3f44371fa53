#include "engine/workspaces.hpp"

#include "cuda/stream_owner.hpp"
#include "engine/thread_stream.hpp"

namespace kiln::engine {

const Workspaces::Block* Workspaces::block_of(Key stream) const noexcept {
  const Block* block = head_.load(std::memory_order_acquire);
  while (block != nullptr && block->stream != stream) block = block->next;
  return block;
}

CUdeviceptr Workspaces::find(CUstream stream) const noexcept {
  const Block* block = block_of(SharedWorkspaces::key_of(stream));
  return block != nullptr ? block->buffer.pointer() : 0;
}

jit::WorkspaceBlocks Workspaces::blocks(CUstream stream) const noexcept {
  const Key key = SharedWorkspaces::key_of(stream);
  const Block* own = bytes_ > 0 ? block_of(key) : nullptr;
  return {own != nullptr ? own->buffer.pointer() : 0, shared_ != nullptr ? shared_->find(key, shared_bytes_) : 0};
}

CUdeviceptr Workspaces::make(CUstream stream) {
  if (cuda::is_per_thread(stream)) note_thread_stream();
  return make_keyed(SharedWorkspaces::key_of(stream));
}

/// Zeroes on a stream of its own and waits: a graph captured on one stream may be launched on another.
CUdeviceptr Workspaces::make_keyed(Key stream) {
  if (shared_ != nullptr) shared_->make(stream, shared_bytes_);
  const std::lock_guard lock(mutex_);
  if (const Block* existing = block_of(stream)) return existing->buffer.pointer();
  cuda::Buffer buffer(bytes_);
  if (zeroed_ && bytes_ > 0) {
    const cuda::Stream filling;
    buffer.fill_bytes(0, filling.handle());
    filling.synchronize();
  }
  Block& block = blocks_.emplace_back(Block{stream, std::move(buffer), head_.load(std::memory_order_relaxed)});
  head_.store(&block, std::memory_order_release);
  return block.buffer.pointer();
}

void Workspaces::make_as(const Workspaces& other) {
  for (const Block* block = other.head_.load(std::memory_order_acquire); block != nullptr; block = block->next)
    make_keyed(block->stream);
}

}  // namespace kiln::engine

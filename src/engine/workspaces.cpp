#include "engine/workspaces.hpp"

#include "cuda/stream_owner.hpp"
#include "engine/thread_stream.hpp"

namespace kiln::engine {

namespace {

std::uintptr_t key_of(CUstream stream) noexcept {
  return cuda::is_per_thread(stream) ? thread_stream() : reinterpret_cast<std::uintptr_t>(stream);
}

}  // namespace

const Workspaces::Block* Workspaces::block_of(Key stream) const noexcept {
  const Block* block = head_.load(std::memory_order_acquire);
  while (block != nullptr && block->stream != stream) block = block->next;
  return block;
}

CUdeviceptr Workspaces::find(CUstream stream) const noexcept {
  const Block* block = block_of(key_of(stream));
  return block != nullptr ? block->buffer.pointer() : 0;
}

CUdeviceptr Workspaces::make(CUstream stream) {
  if (cuda::is_per_thread(stream)) note_thread_stream();
  return make_keyed(key_of(stream));
}

/// Zeroes on a stream of its own and waits: a graph captured on one stream may be launched on another.
CUdeviceptr Workspaces::make_keyed(Key stream) {
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

#include "engine/shared_workspaces.hpp"

#include <algorithm>

#include "cuda/stream_owner.hpp"
#include "engine/thread_stream.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {
namespace {

cuda::Buffer allocate(std::int64_t wanted, std::int64_t needed) {
  try {
    return cuda::Buffer(wanted);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory || wanted == needed) throw;
  }
  return cuda::Buffer(needed);
}

}  // namespace

SharedWorkspaces::Key SharedWorkspaces::key_of(CUstream stream) noexcept {
  return cuda::is_per_thread(stream) ? thread_stream() : reinterpret_cast<Key>(stream);
}

void SharedWorkspaces::note(std::int64_t bytes) noexcept {
  std::int64_t largest = largest_.load(std::memory_order_relaxed);
  while (largest < bytes && !largest_.compare_exchange_weak(largest, bytes, std::memory_order_relaxed)) {
  }
}

CUdeviceptr SharedWorkspaces::find(Key stream, std::int64_t bytes) const noexcept {
  const Block* block = head_.load(std::memory_order_acquire);
  while (block != nullptr && block->stream != stream) block = block->next;
  return block != nullptr && block->buffer.bytes() >= bytes ? block->buffer.pointer() : 0;
}

CUdeviceptr SharedWorkspaces::make(Key stream, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const CUdeviceptr existing = find(stream, bytes); existing != 0) return existing;
  cuda::Buffer buffer = allocate(std::max(bytes, largest_.load(std::memory_order_relaxed)), bytes);
  Block& block = blocks_.emplace_back(Block{stream, std::move(buffer), head_.load(std::memory_order_relaxed)});
  head_.store(&block, std::memory_order_release);
  return block.buffer.pointer();
}

}  // namespace kiln::engine

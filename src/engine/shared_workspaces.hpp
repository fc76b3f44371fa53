// Device memory that all plans of a stream share: one block per stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "cuda/device.hpp"

namespace kiln::engine {

/// Readers take no lock. Nothing is enqueued on the streams.
///
/// A stream's block has the bytes of the largest plan that was made before it. A larger plan that is made later gets a new block, which all
/// later launches on the stream use. The older block stays allocated as long as the engine: a captured graph, or a launch under way, may
/// hold its address. So prepare the largest bucket of a stream first, to have one block only.
class SharedWorkspaces {
 public:
  /// A stream's handle; thread_stream() for a thread's own default stream.
  using Key = std::uintptr_t;
  static Key key_of(CUstream stream) noexcept;

  /// Remembers that a plan was made that needs `bytes`.
  void note(std::int64_t bytes) noexcept;
  /// Returns the stream's present block, or 0 where it has none of at least `bytes`.
  [[nodiscard]] CUdeviceptr find(Key stream, std::int64_t bytes) const noexcept;
  /// Returns the stream's block of at least `bytes`, allocated in the current context where there is none. Where memory lacks for the largest
  /// plan, the block has `bytes`. Throws Error(out_of_memory). Precondition: the stream does not capture.
  CUdeviceptr make(Key stream, std::int64_t bytes);

 private:
  struct Block {
    Key stream;
    cuda::Buffer buffer;
    Block* next;
  };

  std::atomic<std::int64_t> largest_{0};
  std::mutex mutex_;
  std::deque<Block> blocks_;
  std::atomic<Block*> head_{nullptr};  // a stream's present block stands before its older ones
};

}  // namespace kiln::engine

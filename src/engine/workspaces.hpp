// Device memory for a plan's workspace, one block per stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "cuda/device.hpp"

namespace kiln::engine {

/// Readers take no lock. Nothing is enqueued on the streams.
class Workspaces {
 public:
  /// Each block has `bytes`; `zeroed`: filled with zeros when it is made.
  Workspaces(std::int64_t bytes, bool zeroed) : bytes_(bytes), zeroed_(zeroed) {}
  /// Returns the stream's block, or 0 where it has none.
  [[nodiscard]] CUdeviceptr find(CUstream stream) const noexcept;
  /// Whether a launch on the stream finds its workspace.
  [[nodiscard]] bool serves(CUstream stream) const noexcept { return bytes_ == 0 || find(stream) != 0; }
  /// Returns the stream's block, allocated in the current context where there is none; of 0 bytes, notes the stream and returns 0. Throws
  /// Error(out_of_memory). Precondition: the stream does not capture.
  CUdeviceptr make(CUstream stream);
  /// Makes a block for each stream that `other` has or noted.
  void make_as(const Workspaces& other);
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  /// A stream's handle; thread_stream() for a thread's own default stream.
  using Key = std::uintptr_t;
  struct Block {
    Key stream;
    cuda::Buffer buffer;
    Block* next;
  };
  [[nodiscard]] const Block* block_of(Key stream) const noexcept;
  CUdeviceptr make_keyed(Key stream);

  std::int64_t bytes_;
  bool zeroed_;
  std::mutex mutex_;
  std::deque<Block> blocks_;
  std::atomic<Block*> head_{nullptr};
};

}  // namespace kiln::engine

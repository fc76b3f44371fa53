// Device memory for a plan's workspace, one block a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "cuda/device.hpp"

namespace kiln::engine {

/// Reading takes no lock, and nothing is ever enqueued on those streams.
class Workspaces {
 public:
  explicit Workspaces(std::int64_t bytes, bool zeroed) : bytes_(bytes), zeroed_(zeroed) {}
  /// The stream's block, or 0 when it has none yet.
  [[nodiscard]] CUdeviceptr find(CUstream stream) const noexcept;
  /// Whether a launch on the stream finds all that it needs.
  [[nodiscard]] bool serves(CUstream stream) const noexcept { return bytes_ == 0 || find(stream) != 0; }
  /// Makes one in the current context when there is none; one of no bytes notes the stream. Not for a capturing stream, on which nothing
  /// is allocated. Throws Error(out_of_memory).
  CUdeviceptr make(CUstream stream);
  /// One for each stream that `other` has or noted.
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

// Device memory for a plan's workspaces: a block of its own per stream, and a block per stream that it shares with other plans.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "cuda/device.hpp"
#include "engine/shared_workspaces.hpp"
#include "jit/launch_form.hpp"

namespace kiln::engine {

/// Readers take no lock. Nothing is enqueued on the streams.
class Workspaces {
 public:
  /// Each block has `bytes`; `zeroed`: filled with zeros when it is made.
  Workspaces(std::int64_t bytes, bool zeroed) : bytes_(bytes), zeroed_(zeroed) {}
  /// The plan also uses `shared_bytes` of the blocks in `shared`, which must outlive this.
  Workspaces(std::int64_t bytes, bool zeroed, std::int64_t shared_bytes, SharedWorkspaces& shared)
      : bytes_(bytes), zeroed_(zeroed), shared_bytes_(shared_bytes), shared_(shared_bytes > 0 ? &shared : nullptr) {}
  /// Returns the stream's own block, or 0 where it has none.
  [[nodiscard]] CUdeviceptr find(CUstream stream) const noexcept;
  /// Returns the stream's own block and the shared one, each 0 where it is missing or not needed.
  [[nodiscard]] jit::WorkspaceBlocks blocks(CUstream stream) const noexcept;
  [[nodiscard]] bool is_complete(const jit::WorkspaceBlocks& blocks) const noexcept {
    return (bytes_ == 0 || blocks.own != 0) && (shared_bytes_ == 0 || blocks.shared != 0);
  }
  [[nodiscard]] bool needs_none() const noexcept { return bytes_ == 0 && shared_bytes_ == 0; }
  /// Whether a launch on the stream finds its workspaces.
  [[nodiscard]] bool serves(CUstream stream) const noexcept { return needs_none() || is_complete(blocks(stream)); }
  /// Makes what the stream lacks in the current context, and returns its own block; of 0 bytes, notes the stream and returns 0. Throws
  /// Error(out_of_memory). Precondition: the stream does not capture.
  CUdeviceptr make(CUstream stream);
  /// Makes a block for each stream that `other` has or noted.
  void make_as(const Workspaces& other);
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  using Key = SharedWorkspaces::Key;
  struct Block {
    Key stream;
    cuda::Buffer buffer;
    Block* next;
  };
  [[nodiscard]] const Block* block_of(Key stream) const noexcept;
  CUdeviceptr make_keyed(Key stream);

  std::int64_t bytes_;
  bool zeroed_;
  std::int64_t shared_bytes_ = 0;
  SharedWorkspaces* shared_ = nullptr;
  std::mutex mutex_;
  std::deque<Block> blocks_;
  std::atomic<Block*> head_{nullptr};
};

}  // namespace kiln::engine

// NCCL's communicator of a team's ranks, which Kiln makes for the ops that NCCL may serve.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "cuda/device.hpp"
#include "cuda/nccl_api.hpp"

namespace kiln::team {

/// Enqueues for one thread at a time, as NCCL asks.
class NcclCommunicator {
 public:
  /// What all ranks give their constructors, made by one of them. Throws Error(no_nccl).
  static std::string unique_id();

  /// How long a rank waits in NCCL for the others. Where it waits in vain or for too long, a thread stays in NCCL,
  /// which cannot be called back.
  struct Waiting {
    std::chrono::milliseconds timeout;
    std::function<bool()> is_in_vain;  // asked again and again: no longer to wait, since a rank has ended
  };
  /// Returns once all `world` ranks have called it, for the context's device. Throws Error(no_nccl) where NCCL is
  /// missing or fails, and where it waits in vain or for too long. `context` outlives this.
  NcclCommunicator(const std::string& id, int rank, int world, const cuda::Context& context, const Waiting& waiting);
  /// Ends NCCL's kernels of this rank, and waits for no other rank.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Frees the communicator, for which NCCL waits until all ranks do. Precondition: no collective is under way.
  void close(const Waiting& waiting) noexcept;
  /// Makes NCCL's kernels of this rank end, with any output. Enqueues fail from then on. For any thread.
  void abort() noexcept;

  /// The error that NCCL has met on its own, as of a network; ncclSuccess without one, and after close() and abort().
  /// For any thread.
  [[nodiscard]] ncclResult_t error() const noexcept;

  /// Whether there is no communicator any more, after close() or abort().
  [[nodiscard]] bool has_ended() const noexcept { return handle_.load() == nullptr; }

  /// Calls `work` with NCCL's functions and the communicator. Returns ncclInvalidUsage after close() and abort().
  template <typename Work>
  ncclResult_t enqueue(const Work& work) const noexcept {
    const std::lock_guard lock(mutex_);
    ncclComm_t handle = handle_.load(std::memory_order_relaxed);
    return handle == nullptr ? ncclInvalidUsage : work(nccl_, handle);
  }

 private:
  const cuda::Nccl& nccl_;
  const cuda::Context& context_;
  mutable std::mutex mutex_;
  std::atomic<ncclComm_t> handle_ = nullptr;  // null: none any more
};

}  // namespace kiln::team

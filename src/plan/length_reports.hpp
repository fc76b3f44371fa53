// Reports by kernels of lengths in device memory outside their bounds, and of indices outside their tables: words of
// mapped host memory, one for each op and axis or tensor of integers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>

#include "cuda/device.hpp"
#include "kiln/problem.hpp"

namespace kiln::plan {

class LengthReports {
 public:
  /// Begins to allocate the words on another thread, as the driver takes a millisecond for it.
  LengthReports(const cuda::Context& context, std::size_t ops);
  ~LengthReports();
  LengthReports(const LengthReports&) = delete;
  LengthReports& operator=(const LengthReports&) = delete;

  /// Waits until the words are allocated, and tries again where that failed. Not for a capturing thread. Throws
  /// Error(out_of_memory) or Error(driver_failed).
  void open();
  /// The device address of an op's max_axes words; 0 before open(). No lock.
  [[nodiscard]] CUdeviceptr of(std::size_t op) const noexcept {
    const std::uint64_t* words = words_.load(std::memory_order_acquire);
    return words == nullptr ? 0 : reinterpret_cast<CUdeviceptr>(words + op * max_axes);
  }

  struct Report {
    std::size_t op, word;  // of the op: an axis, or as Op::reported_tensor() says
    std::int64_t length, bound;
  };
  /// Returns a report and removes it; nothing where there is none.
  std::optional<Report> take() noexcept;

 private:
  void allocate();
  const cuda::Context& context_;
  std::size_t ops_;
  std::mutex mutex_;
  std::atomic<std::uint64_t*> words_{nullptr};
  std::future<void> first_try_;  // last: its thread uses the others
};

}  // namespace kiln::plan

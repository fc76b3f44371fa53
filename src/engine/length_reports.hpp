// Where kernels tell of a length in device memory that is not within its bound: words of host memory, one for each op and axis.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>

#include "cuda/device.hpp"
#include "kiln/problem.hpp"

namespace kiln::engine {

class LengthReports {
 public:
  /// Begins to allocate the words beside all else that a start has to do: the driver takes a millisecond for it.
  LengthReports(const cuda::Context& context, std::size_t ops);
  ~LengthReports();
  LengthReports(const LengthReports&) = delete;
  LengthReports& operator=(const LengthReports&) = delete;

  /// Waits until the words are there, and tries again where they could not be allocated; off the capture path. Throws Error(out_of_memory,
  /// or driver_failed).
  void open();
  /// The device's address of an op's words, max_axes of them; 0 while they are not there, never after open(). No lock.
  [[nodiscard]] CUdeviceptr of(std::size_t op) const noexcept {
    const std::uint64_t* words = words_.load(std::memory_order_acquire);
    return words == nullptr ? 0 : reinterpret_cast<CUdeviceptr>(words + op * max_axes);
  }

  struct Report {
    std::size_t op, axis;
    std::int64_t length, bound;
  };
  /// The first one that stands, and takes it away.
  std::optional<Report> take() noexcept;

 private:
  void allocate();
  const cuda::Context& context_;
  std::size_t ops_;
  std::mutex mutex_;
  std::atomic<std::uint64_t*> words_{nullptr};
  std::future<void> first_try_;  // last: it ends before what it uses
};

}  // namespace kiln::engine

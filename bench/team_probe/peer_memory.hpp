// Device memory that another process maps through a file descriptor.
#pragma once

#include <cstddef>

#include "cuda/device.hpp"

namespace kiln::bench {

/// cuMemCreate or cuMemImportFromShareableHandle, mapped into this process for one device. Needs that device's context.
class PeerMemory {
 public:
  /// `bytes` are rounded up to the granularity. Each throws Error(driver_failed) with the call that failed.
  static PeerMemory create(std::size_t bytes, int ordinal);
  static PeerMemory import(int descriptor, std::size_t bytes, int ordinal);
  ~PeerMemory();
  PeerMemory(PeerMemory&& other) noexcept;
  PeerMemory& operator=(PeerMemory&&) = delete;

  [[nodiscard]] CUdeviceptr pointer() const noexcept { return pointer_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// A new descriptor, which the caller closes.
  [[nodiscard]] int descriptor() const;
  /// Unmaps, frees and releases: the first error that any of these returned.
  CUresult close() noexcept;

 private:
  PeerMemory() = default;
  void map(int ordinal);

  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr pointer_ = 0;
  std::size_t bytes_ = 0;
  bool held_ = false, mapped_ = false;
};

std::size_t granularity(int ordinal, CUmemAllocationGranularity_flags flags);

}  // namespace kiln::bench

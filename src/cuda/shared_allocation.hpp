// Device memory that processes of one host share: created here or imported by a file descriptor, and mapped.
#pragma once

#include <cstddef>

#include "cuda/device.hpp"

namespace kiln::cuda {

/// Throws Error(no_driver) naming the first function of virtual memory that `driver` lacks.
void require_virtual_memory(const Driver& driver);

/// Memory stays until every process has unmapped it and closed its descriptors, whoever created it. A device must have
/// been opened by a Context that outlives this.
class SharedAllocation {
 public:
  /// Rounds `bytes` up to granularity(). Throws Error(out_of_memory), or Error(driver_failed) with the call's name, or
  /// as require_virtual_memory() does.
  static SharedAllocation create(std::size_t bytes, int ordinal);
  /// Maps all of another process's allocation, whose bytes() are `bytes`, for the device `ordinal` of this process.
  /// Leaves the descriptor open. Throws as create() does.
  static SharedAllocation import(int descriptor, std::size_t bytes, int ordinal);
  ~SharedAllocation();
  SharedAllocation(SharedAllocation&& other) noexcept;
  SharedAllocation& operator=(SharedAllocation&&) = delete;

  [[nodiscard]] CUdeviceptr pointer() const noexcept { return pointer_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns a new descriptor, which the caller closes and no program that this process starts inherits.
  [[nodiscard]] int descriptor() const;
  /// Unmaps and releases at once; the destructor then does nothing. Returns the first error of the driver's calls.
  CUresult close() noexcept;

 private:
  SharedAllocation() = default;
  void map(int ordinal);

  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr pointer_ = 0;
  std::size_t bytes_ = 0;
  bool held_ = false, mapped_ = false;
};

/// Returns the bytes of which a SharedAllocation on this device is a multiple, a power of two. Throws as create() does.
std::size_t granularity(int ordinal, CUmemAllocationGranularity_flags flags);

}  // namespace kiln::cuda

// Memory that is created apart from its addresses, and exported to other processes: files in memory, mapped where the caller reserved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "cuda/driver_types.hpp"

namespace fake_cuda {

class VirtualMemory {
 public:
  static constexpr std::int64_t granularity = std::int64_t{2} << 20;  // of addresses

  /// Throws Failure(CUDA_ERROR_OUT_OF_MEMORY) when the device would hold more than `limit` of it.
  CUmemGenericAllocationHandle create(std::int64_t bytes, CUdevice device, bool exportable, std::int64_t limit);
  /// The memory goes with its last handle and mapping, here and in other processes.
  void release(CUmemGenericAllocationHandle handle);
  /// A new descriptor of the memory, which is the caller's.
  int export_descriptor(CUmemGenericAllocationHandle handle) const;
  /// Throws Failure(CUDA_ERROR_INVALID_VALUE) for a descriptor that no fake driver exported.
  CUmemGenericAllocationHandle import_descriptor(int descriptor);

  CUdeviceptr reserve(std::int64_t bytes, std::int64_t alignment);
  void free(CUdeviceptr pointer, std::int64_t bytes);
  /// The whole of the memory, at addresses that are reserved and hold none. Nobody may access it yet.
  void map(CUdeviceptr pointer, std::int64_t bytes, CUmemGenericAllocationHandle handle);
  void unmap(CUdeviceptr pointer, std::int64_t bytes);
  /// Returns the device whose memory it is.
  CUdevice allow(CUdeviceptr pointer, std::int64_t bytes);

  /// Created here and alive; what was imported belongs to others.
  [[nodiscard]] std::int64_t bytes_on(CUdevice device) const;
  /// Handles, reservations and mappings alive.
  [[nodiscard]] std::int64_t count() const noexcept {
    return static_cast<std::int64_t>(handles_.size() + reserved_.size() + mapped_.size());
  }

 private:
  struct Memory {
    Memory() = default;
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    int descriptor = -1;
    std::int64_t bytes = 0;
    CUdevice device = 0;
    bool exportable = false;
    bool imported = false;
  };
  struct Mapping {
    std::int64_t bytes = 0;
    std::shared_ptr<const Memory> memory;
  };

  CUmemGenericAllocationHandle keep(std::shared_ptr<const Memory> memory);
  [[nodiscard]] const std::shared_ptr<const Memory>& of(CUmemGenericAllocationHandle handle) const;
  [[nodiscard]] const Mapping& at(CUdeviceptr pointer, std::int64_t bytes) const;

  std::map<CUmemGenericAllocationHandle, std::shared_ptr<const Memory>> handles_;
  std::map<CUdeviceptr, std::int64_t> reserved_;
  std::map<CUdeviceptr, Mapping> mapped_;
  CUmemGenericAllocationHandle last_handle_ = 0;
};

}  // namespace fake_cuda

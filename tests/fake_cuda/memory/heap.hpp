// Device memory: host memory with known bounds and a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "cuda/driver_types.hpp"

namespace fake_cuda {

class Heap {
 public:
  struct Block {
    CUdeviceptr begin = 0;
    std::int64_t bytes = 0;
    CUdevice device = 0;
    bool mapped = false;  // by mmap, in whole pages
    bool shown = false;   // not the heap's: by show()
  };

  Heap() = default;
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Multiples of 256. Throws Failure(CUDA_ERROR_OUT_OF_MEMORY) when the device would hold more than `limit`.
  CUdeviceptr allocate(std::int64_t bytes, CUdevice device, std::int64_t limit);
  /// Throws Failure(CUDA_ERROR_INVALID_VALUE) for what is no allocation's beginning.
  void release(CUdeviceptr pointer);
  void release_all(CUdevice device);
  /// Memory of VirtualMemory's that kernels and copies may now reach; forget() takes it back, if it was shown.
  void show(CUdeviceptr pointer, std::int64_t bytes, CUdevice device);
  void forget(CUdeviceptr pointer);

  /// The allocation that holds all of [pointer, pointer + bytes), or null.
  [[nodiscard]] const Block* find(CUdeviceptr pointer, std::int64_t bytes) const;
  /// Host memory of a range. Throws Failure(`otherwise`) when it is not within one allocation.
  [[nodiscard]] std::byte* at(CUdeviceptr pointer, std::int64_t bytes,
                              CUresult otherwise = CUDA_ERROR_INVALID_VALUE) const;
  void fill(CUdeviceptr pointer, unsigned char value, std::int64_t bytes);

  /// Of what was allocated here, as all the counts.
  [[nodiscard]] std::int64_t bytes() const noexcept;
  [[nodiscard]] std::int64_t bytes_on(CUdevice device) const noexcept;
  [[nodiscard]] std::int64_t peak_bytes() const noexcept { return peak_; }
  [[nodiscard]] std::int64_t count() const noexcept;

 private:
  static void give_back(const Block& block);

  std::map<CUdeviceptr, Block> blocks_;  // by begin
  std::int64_t peak_ = 0;
};

}  // namespace fake_cuda

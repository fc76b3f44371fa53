#include "team_probe/peer_memory.hpp"

#include <cstdint>
#include <utility>

namespace kiln::bench {
namespace {

CUmemAllocationProp shareable_on(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return properties;
}

}  // namespace

std::size_t granularity(int ordinal, CUmemAllocationGranularity_flags flags) {
  const CUmemAllocationProp properties = shareable_on(ordinal);
  std::size_t bytes = 0;
  cuda::check(cuda::Driver::get().cuMemGetAllocationGranularity(&bytes, &properties, flags),
              "cuMemGetAllocationGranularity");
  return bytes;
}

PeerMemory PeerMemory::create(std::size_t bytes, int ordinal) {
  const CUmemAllocationProp properties = shareable_on(ordinal);
  const std::size_t unit = granularity(ordinal, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  PeerMemory memory;
  memory.bytes_ = (bytes + unit - 1) / unit * unit;
  cuda::check(cuda::Driver::get().cuMemCreate(&memory.handle_, memory.bytes_, &properties, 0), "cuMemCreate");
  memory.held_ = true;
  memory.map(ordinal);
  return memory;
}

PeerMemory PeerMemory::import(int descriptor, std::size_t bytes, int ordinal) {
  PeerMemory memory;
  memory.bytes_ = bytes;
  // The driver takes the descriptor itself where other handle types have a pointer.
  void* shareable = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
  cuda::check(cuda::Driver::get().cuMemImportFromShareableHandle(&memory.handle_, shareable,
                                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              "cuMemImportFromShareableHandle");
  memory.held_ = true;
  memory.map(ordinal);
  return memory;
}

void PeerMemory::map(int ordinal) {
  const cuda::Driver& driver = cuda::Driver::get();
  cuda::check(driver.cuMemAddressReserve(&pointer_, bytes_, 0, 0, 0), "cuMemAddressReserve");
  cuda::check(driver.cuMemMap(pointer_, bytes_, 0, handle_, 0), "cuMemMap");
  mapped_ = true;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, ordinal}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  cuda::check(driver.cuMemSetAccess(pointer_, bytes_, &access, 1), "cuMemSetAccess");
}

int PeerMemory::descriptor() const {
  int descriptor = -1;
  cuda::check(cuda::Driver::get().cuMemExportToShareableHandle(&descriptor, handle_,
                                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              "cuMemExportToShareableHandle");
  return descriptor;
}

CUresult PeerMemory::close() noexcept {
  const cuda::Driver& driver = *cuda::Driver::find();
  CUresult first = CUDA_SUCCESS;
  const auto note = [&](CUresult result) {
    if (first == CUDA_SUCCESS) first = result;
  };
  if (std::exchange(mapped_, false)) note(driver.cuMemUnmap(pointer_, bytes_));
  if (const CUdeviceptr pointer = std::exchange(pointer_, 0); pointer != 0)
    note(driver.cuMemAddressFree(pointer, bytes_));
  if (std::exchange(held_, false)) note(driver.cuMemRelease(handle_));
  return first;
}

PeerMemory::PeerMemory(PeerMemory&& other) noexcept
    : handle_(other.handle_),
      pointer_(std::exchange(other.pointer_, 0)),
      bytes_(other.bytes_),
      held_(std::exchange(other.held_, false)),
      mapped_(std::exchange(other.mapped_, false)) {}

PeerMemory::~PeerMemory() { close(); }

}  // namespace kiln::bench

#include "cuda/shared_allocation.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

CUmemAllocationProp shareable_on(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return properties;
}

}  // namespace

void require_virtual_memory(const Driver& driver) {
  const std::pair<const char*, bool> functions[] = {
      {"cuMemGetAllocationGranularity", driver.cuMemGetAllocationGranularity != nullptr},
      {"cuMemCreate", driver.cuMemCreate != nullptr},
      {"cuMemRelease", driver.cuMemRelease != nullptr},
      {"cuMemExportToShareableHandle", driver.cuMemExportToShareableHandle != nullptr},
      {"cuMemImportFromShareableHandle", driver.cuMemImportFromShareableHandle != nullptr},
      {"cuMemAddressReserve", driver.cuMemAddressReserve != nullptr},
      {"cuMemAddressFree", driver.cuMemAddressFree != nullptr},
      {"cuMemMap", driver.cuMemMap != nullptr},
      {"cuMemUnmap", driver.cuMemUnmap != nullptr},
      {"cuMemSetAccess", driver.cuMemSetAccess != nullptr}};
  for (const auto& [name, found] : functions)
    if (!found)
      throw Error(ErrorKind::no_driver,
                  std::string("memory that processes share was asked for, but the CUDA driver at ") + driver.path() +
                      " lacks " + name + "; install NVIDIA driver 525 or newer");
}

std::size_t granularity(int ordinal, CUmemAllocationGranularity_flags flags) {
  require_virtual_memory(Driver::get());
  const CUmemAllocationProp properties = shareable_on(ordinal);
  std::size_t bytes = 0;
  check(Driver::get().cuMemGetAllocationGranularity(&bytes, &properties, flags), "cuMemGetAllocationGranularity");
  return bytes;
}

SharedAllocation SharedAllocation::create(std::size_t bytes, int ordinal) {
  const CUmemAllocationProp properties = shareable_on(ordinal);
  const std::size_t unit = granularity(ordinal, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  SharedAllocation memory;
  memory.bytes_ = (bytes + unit - 1) / unit * unit;
  check(Driver::get().cuMemCreate(&memory.handle_, memory.bytes_, &properties, 0), "cuMemCreate");
  memory.held_ = true;
  memory.map(ordinal);
  return memory;
}

SharedAllocation SharedAllocation::import(int descriptor, std::size_t bytes, int ordinal) {
  require_virtual_memory(Driver::get());
  SharedAllocation memory;
  memory.bytes_ = bytes;
  // The driver takes the descriptor itself where other handle types have a pointer.
  void* shareable = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
  check(Driver::get().cuMemImportFromShareableHandle(&memory.handle_, shareable,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle");
  memory.held_ = true;
  memory.map(ordinal);
  return memory;
}

void SharedAllocation::map(int ordinal) {
  const Driver& driver = Driver::get();
  check(driver.cuMemAddressReserve(&pointer_, bytes_, 0, 0, 0), "cuMemAddressReserve");
  check(driver.cuMemMap(pointer_, bytes_, 0, handle_, 0), "cuMemMap");
  mapped_ = true;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, ordinal}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(driver.cuMemSetAccess(pointer_, bytes_, &access, 1), "cuMemSetAccess");
}

int SharedAllocation::descriptor() const {
  int descriptor = -1;
  check(Driver::get().cuMemExportToShareableHandle(&descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle");
  if (fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0) return descriptor;
  const std::string reason = std::strerror(errno);
  ::close(descriptor);
  throw Error(ErrorKind::driver_failed, "cuMemExportToShareableHandle gave descriptor " + std::to_string(descriptor) +
                                            ", which fcntl refuses: " + reason);
}

CUresult SharedAllocation::close() noexcept {
  if (is_forked()) return CUDA_SUCCESS;  // the parent's
  const Driver& driver = *Driver::find();
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

SharedAllocation::SharedAllocation(SharedAllocation&& other) noexcept
    : handle_(other.handle_),
      pointer_(std::exchange(other.pointer_, 0)),
      bytes_(other.bytes_),
      held_(std::exchange(other.held_, false)),
      mapped_(std::exchange(other.mapped_, false)) {}

SharedAllocation::~SharedAllocation() { close(); }

}  // namespace kiln::cuda

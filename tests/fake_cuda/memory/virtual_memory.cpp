#include "memory/virtual_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "driver/errors.hpp"

namespace fake_cuda {
namespace {

constexpr std::int64_t most_poisoned = std::int64_t{64} << 20;  // bytes; more would slow tests down
constexpr const char* file_name = "fake_cuda_device_%d";

bool is_multiple(std::int64_t bytes) { return bytes > 0 && bytes % VirtualMemory::granularity == 0; }

void* as_host(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

/// Maps nothing there, and keeps the addresses.
void close_off(CUdeviceptr pointer, std::int64_t bytes) {
  void* kept = mmap(as_host(pointer), static_cast<std::size_t>(bytes), PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  require(kept != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
}

/// Nobody may count on zeros.
void poison(int descriptor, std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(std::min(bytes, most_poisoned));
  void* memory = mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  require(memory != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  std::memset(memory, 0xcb, count);
  munmap(memory, count);
}

/// The device of an exported descriptor, by the name that create() gave its file; -1 for any other.
CUdevice device_of(int descriptor) {
  std::array<char, 128> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  if (readlink(link.c_str(), target.data(), target.size() - 1) < 0) return -1;
  CUdevice device = -1;
  return std::sscanf(target.data(), (std::string("/memfd:") + file_name).c_str(), &device) == 1 ? device : -1;
}

}  // namespace

VirtualMemory::Memory::~Memory() {
  if (descriptor >= 0) close(descriptor);
}

CUmemGenericAllocationHandle VirtualMemory::keep(std::shared_ptr<const Memory> memory) {
  handles_.emplace(++last_handle_, std::move(memory));
  return last_handle_;
}

const std::shared_ptr<const VirtualMemory::Memory>& VirtualMemory::of(CUmemGenericAllocationHandle handle) const {
  const auto found = handles_.find(handle);
  require(found != handles_.end(), CUDA_ERROR_INVALID_VALUE);
  return found->second;
}

const VirtualMemory::Mapping& VirtualMemory::at(CUdeviceptr pointer, std::int64_t bytes) const {
  const auto found = mapped_.find(pointer);
  require(found != mapped_.end() && found->second.bytes == bytes, CUDA_ERROR_INVALID_VALUE);
  return found->second;
}

CUmemGenericAllocationHandle VirtualMemory::create(std::int64_t bytes, CUdevice device, bool exportable,
                                                   std::int64_t limit) {
  require(is_multiple(bytes), CUDA_ERROR_INVALID_VALUE);
  require(bytes <= limit - bytes_on(device), CUDA_ERROR_OUT_OF_MEMORY);
  auto memory = std::make_shared<Memory>();
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), file_name, device);
  memory->descriptor = memfd_create(name.data(), MFD_CLOEXEC);
  require(memory->descriptor >= 0 && ftruncate(memory->descriptor, bytes) == 0, CUDA_ERROR_OUT_OF_MEMORY);
  poison(memory->descriptor, bytes);
  memory->bytes = bytes;
  memory->device = device;
  memory->exportable = exportable;
  return keep(std::move(memory));
}

void VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  require(handles_.erase(handle) == 1, CUDA_ERROR_INVALID_VALUE);
}

int VirtualMemory::export_descriptor(CUmemGenericAllocationHandle handle) const {
  const Memory& memory = *of(handle);
  require(memory.exportable, CUDA_ERROR_INVALID_VALUE);
  const int descriptor = dup(memory.descriptor);  // without FD_CLOEXEC, which CUDA does not promise
  require(descriptor >= 0, CUDA_ERROR_OPERATING_SYSTEM);
  return descriptor;
}

CUmemGenericAllocationHandle VirtualMemory::import_descriptor(int descriptor) {
  auto memory = std::make_shared<Memory>();
  memory->device = device_of(descriptor);
  struct stat facts {};
  require(memory->device >= 0 && fstat(descriptor, &facts) == 0, CUDA_ERROR_INVALID_VALUE);
  memory->descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  require(memory->descriptor >= 0, CUDA_ERROR_OPERATING_SYSTEM);
  memory->bytes = facts.st_size;
  memory->imported = true;
  return keep(std::move(memory));
}

CUdeviceptr VirtualMemory::reserve(std::int64_t bytes, std::int64_t alignment) {
  require(is_multiple(bytes) && alignment >= 0 && (alignment & (alignment - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
  const auto unit = static_cast<CUdeviceptr>(std::max(alignment, granularity)), size = static_cast<CUdeviceptr>(bytes);
  void* memory = mmap(nullptr, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  const auto begin = reinterpret_cast<CUdeviceptr>(memory), aligned = (begin + unit - 1) / unit * unit;
  if (aligned > begin) munmap(memory, aligned - begin);
  munmap(as_host(aligned + size), begin + unit - aligned);
  reserved_.emplace(aligned, bytes);
  return aligned;
}

void VirtualMemory::free(CUdeviceptr pointer, std::int64_t bytes) {
  const auto found = reserved_.find(pointer);
  require(found != reserved_.end() && found->second == bytes, CUDA_ERROR_INVALID_VALUE);
  const auto first = mapped_.lower_bound(pointer);
  require(first == mapped_.end() || first->first >= pointer + static_cast<CUdeviceptr>(bytes),
          CUDA_ERROR_INVALID_VALUE);
  munmap(as_host(pointer), static_cast<std::size_t>(bytes));
  reserved_.erase(found);
}

void VirtualMemory::map(CUdeviceptr pointer, std::int64_t bytes, CUmemGenericAllocationHandle handle) {
  const std::shared_ptr<const Memory>& memory = of(handle);
  require(bytes == memory->bytes && pointer % static_cast<CUdeviceptr>(granularity) == 0, CUDA_ERROR_INVALID_VALUE);
  const auto end = pointer + static_cast<CUdeviceptr>(bytes);
  const auto after = reserved_.upper_bound(pointer);
  require(after != reserved_.begin(), CUDA_ERROR_INVALID_VALUE);
  const auto& [begin, reserved] = *std::prev(after);
  require(end <= begin + static_cast<CUdeviceptr>(reserved), CUDA_ERROR_INVALID_VALUE);
  for (const auto& [other, mapping] : mapped_)
    require(end <= other || pointer >= other + static_cast<CUdeviceptr>(mapping.bytes), CUDA_ERROR_INVALID_VALUE);
  mapped_.emplace(pointer, Mapping{bytes, memory});
}

void VirtualMemory::unmap(CUdeviceptr pointer, std::int64_t bytes) {
  static_cast<void>(at(pointer, bytes));
  close_off(pointer, bytes);
  mapped_.erase(pointer);
}

CUdevice VirtualMemory::allow(CUdeviceptr pointer, std::int64_t bytes) {
  const Memory& memory = *at(pointer, bytes).memory;
  void* opened = mmap(as_host(pointer), static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      memory.descriptor, 0);
  require(opened != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  return memory.device;
}

std::int64_t VirtualMemory::bytes_on(CUdevice device) const {
  std::set<const Memory*> alive;
  for (const auto& [handle, memory] : handles_) alive.insert(memory.get());
  for (const auto& [pointer, mapping] : mapped_) alive.insert(mapping.memory.get());
  std::int64_t sum = 0;
  for (const Memory* memory : alive) sum += memory->device == device && !memory->imported ? memory->bytes : 0;
  return sum;
}

}  // namespace fake_cuda

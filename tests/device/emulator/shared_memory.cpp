#include "emulator/shared_memory.hpp"

#include <cstring>
#include <new>

#include "emulator/fault.hpp"

namespace emulator {
namespace {

constexpr std::size_t all = SharedMemory::reserved + SharedMemory::capacity;
constexpr std::align_val_t alignment_of_all{1024};

void check_capacity(std::size_t used) {
  if (used > all)
    fault("a block uses {} bytes of shared memory, of {}", used - SharedMemory::reserved, SharedMemory::capacity);
}

}  // namespace

void SharedMemory::Free::operator()(std::byte* bytes) const { ::operator delete(bytes, alignment_of_all); }

SharedMemory::SharedMemory(unsigned rank, unsigned dynamic_bytes) : rank_(rank), used_(reserved + dynamic_bytes) {
  check_capacity(used_);
  for (auto* view : {&bytes_, &asynchronous_}) {
    view->reset(static_cast<std::byte*>(::operator new(all, alignment_of_all)));
    std::memset(view->get(), 0xff, used_);
  }
}

std::byte* SharedMemory::variable(const void* key, std::size_t bytes) {
  const auto known = variables_.find(key);
  if (known != variables_.end()) return known->second;
  const std::size_t offset = (used_ + 127) / 128 * 128;
  check_capacity(offset + bytes);
  std::memset(bytes_.get() + used_, 0xff, offset + bytes - used_);
  used_ = offset + bytes;
  return variables_[key] = bytes_.get() + offset;
}

bool SharedMemory::holds(const void* pointer) const {
  const auto* byte = static_cast<const std::byte*>(pointer);
  return byte >= bytes_.get() + reserved && byte < bytes_.get() + used_;
}

unsigned SharedMemory::address_of(const void* pointer) const {
  if (!holds(pointer)) fault("a shared address is asked of {}, which is not in this block's shared memory", pointer);
  return rank_ << rank_shift | static_cast<unsigned>(static_cast<const std::byte*>(pointer) - bytes_.get());
}

std::byte* SharedMemory::at(unsigned offset, std::size_t bytes, std::size_t alignment) {
  if (offset % alignment != 0) fault("shared address {:#x} is no multiple of {}", offset, alignment);
  if (offset < reserved || offset + bytes > used_)
    fault("{} bytes at shared address {:#x} are outside of the block's, {:#x} to {:#x}", bytes, offset, reserved,
          used_);
  return bytes_.get() + offset;
}

std::byte* SharedMemory::asynchronous_at(unsigned offset, std::size_t bytes, std::size_t alignment) {
  return asynchronous_.get() + (at(offset, bytes, alignment) - bytes_.get());
}

void SharedMemory::publish() { std::memcpy(asynchronous_.get() + reserved, bytes_.get() + reserved, used_ - reserved); }

}  // namespace emulator

#include "memory/heap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "driver/errors.hpp"

namespace fake_cuda {
namespace {

constexpr std::int64_t alignment = 256;
constexpr std::int64_t page = 4096;
constexpr std::int64_t least_mapped = 64 * page;  // smaller ones come from malloc, whose bounds AddressSanitizer knows

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Heap::~Heap() {
  for (const auto& [begin, block] : blocks_) give_back(block);
}

CUdeviceptr Heap::allocate(std::int64_t bytes, CUdevice device, std::int64_t limit) {
  require(bytes > 0, CUDA_ERROR_INVALID_VALUE);
  const std::int64_t held = bytes_on(device);
  require(bytes <= limit - held, CUDA_ERROR_OUT_OF_MEMORY);
  const bool mapped = bytes >= least_mapped;
  // Mapped memory costs nothing until it is touched: a flush buffer of twice the L2 must not slow every test down.
  void* memory = mapped ? mmap(nullptr, static_cast<std::size_t>(round_up(bytes, page)), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                        : std::aligned_alloc(alignment, static_cast<std::size_t>(round_up(bytes, alignment)));
  require(memory != nullptr && memory != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  const auto begin = reinterpret_cast<CUdeviceptr>(memory);
  blocks_.emplace(begin, Block{begin, bytes, device, mapped, false});
  if (!mapped) std::memset(memory, 0xcb, static_cast<std::size_t>(bytes));  // nobody may count on zeros
  peak_ = std::max(peak_, held + bytes);
  return begin;
}

void Heap::give_back(const Block& block) {
  if (block.shown) return;
  void* memory = reinterpret_cast<void*>(block.begin);
  if (block.mapped) {
    munmap(memory, static_cast<std::size_t>(round_up(block.bytes, page)));
  } else {
    std::free(memory);
  }
}

void Heap::release(CUdeviceptr pointer) {
  const auto found = blocks_.find(pointer);
  require(found != blocks_.end() && !found->second.shown, CUDA_ERROR_INVALID_VALUE);
  give_back(found->second);
  blocks_.erase(found);
}

void Heap::release_all(CUdevice device) {
  std::erase_if(blocks_, [&](const auto& entry) {
    const bool goes = entry.second.device == device && !entry.second.shown;
    if (goes) give_back(entry.second);
    return goes;
  });
}

void Heap::show(CUdeviceptr pointer, std::int64_t bytes, CUdevice device) {
  blocks_.insert_or_assign(pointer, Block{pointer, bytes, device, false, true});
}

void Heap::forget(CUdeviceptr pointer) { blocks_.erase(pointer); }

const Heap::Block* Heap::find(CUdeviceptr pointer, std::int64_t bytes) const {
  const auto after = blocks_.upper_bound(pointer);
  if (after == blocks_.begin()) return nullptr;
  const Block& block = std::prev(after)->second;
  const auto offset = static_cast<std::int64_t>(pointer - block.begin);
  return offset < block.bytes && bytes >= 0 && bytes <= block.bytes - offset ? &block : nullptr;
}

std::byte* Heap::at(CUdeviceptr pointer, std::int64_t bytes, CUresult otherwise) const {
  require(find(pointer, bytes) != nullptr, otherwise);
  return reinterpret_cast<std::byte*>(pointer);
}

void Heap::fill(CUdeviceptr pointer, unsigned char value, std::int64_t bytes) {
  std::byte* begin = at(pointer, bytes);
  std::byte* end = begin + bytes;
  const Block* block = find(pointer, bytes);
  if (value == 0 && block->mapped && bytes >= 2 * page) {
    // Dropped pages read as zeros.
    auto* first = reinterpret_cast<std::byte*>(round_up(static_cast<std::int64_t>(pointer), page));
    auto* last = first + (end - first) / page * page;
    madvise(first, static_cast<std::size_t>(last - first), MADV_DONTNEED);
    std::fill(begin, first, std::byte{0});
    std::fill(last, end, std::byte{0});
    return;
  }
  std::memset(begin, value, static_cast<std::size_t>(bytes));
}

std::int64_t Heap::bytes() const noexcept {
  std::int64_t sum = 0;
  for (const auto& [begin, block] : blocks_) sum += block.shown ? 0 : block.bytes;
  return sum;
}

std::int64_t Heap::count() const noexcept {
  return std::count_if(blocks_.begin(), blocks_.end(), [](const auto& entry) { return !entry.second.shown; });
}

std::int64_t Heap::bytes_on(CUdevice device) const noexcept {
  std::int64_t sum = 0;
  for (const auto& [begin, block] : blocks_) sum += block.device == device && !block.shown ? block.bytes : 0;
  return sum;
}

}  // namespace fake_cuda

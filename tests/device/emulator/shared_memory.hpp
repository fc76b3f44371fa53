// The shared memory of a block, and the 32-bit addresses that name it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

namespace emulator {

/// An address holds the block's rank in its cluster in bits 24 and up, and below them an offset that begins at 1024, which the
/// system keeps for itself on sm_90. Dynamic memory lies there, static variables after it. All of it is NaN, of any type, at first.
///
/// There are two views of it: threads' own, and that of the asynchronous proxy (TMA and wgmma), which sees what threads wrote only once
/// a fence has published it.
class SharedMemory {
 public:
  static constexpr unsigned reserved = 1024, capacity = 232448, rank_shift = 24;

  SharedMemory(unsigned rank, unsigned dynamic_bytes);

  [[nodiscard]] std::byte* dynamic() { return bytes_.get() + reserved; }
  /// The variable that `key` stands for: made at the first call.
  [[nodiscard]] std::byte* variable(const void* key, std::size_t bytes);

  [[nodiscard]] bool holds(const void* pointer) const;
  [[nodiscard]] unsigned address_of(const void* pointer) const;
  /// Throws Fault where `bytes` bytes at `offset` are not all the block's, or `offset` is no multiple of `alignment`.
  [[nodiscard]] std::byte* at(unsigned offset, std::size_t bytes, std::size_t alignment);
  /// The same place as the asynchronous proxy sees it. What it writes must also be written at().
  [[nodiscard]] std::byte* asynchronous_at(unsigned offset, std::size_t bytes, std::size_t alignment);
  /// To the asynchronous proxy, whatever thread wrote it: fence.proxy.async.
  void publish();

  static unsigned rank_of(unsigned address) { return address >> rank_shift; }
  static unsigned offset_of(unsigned address) { return address & ((1u << rank_shift) - 1); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  unsigned rank_;
  std::size_t used_;  // the reserved ones included
  std::unique_ptr<std::byte, Free> bytes_, asynchronous_;
  std::map<const void*, std::byte*> variables_;
};

}  // namespace emulator

// Memory that costs nothing until it is used.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <type_traits>

namespace kiln::engine {

/// An array that begins as zeros. What of it was never written to takes no page of memory, each of which costs a process's start some
/// microseconds.
template <class Element>
class ZeroedArray {
 public:
  static_assert(std::is_aggregate_v<Element> && std::is_trivially_destructible_v<Element> && alignof(Element) <= 4096);

  explicit ZeroedArray(std::size_t size) : size_(size) {
    void* memory = mmap(nullptr, size * sizeof(Element), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    first_ = static_cast<Element*>(memory);
  }
  ~ZeroedArray() { munmap(first_, size_ * sizeof(Element)); }
  ZeroedArray(const ZeroedArray&) = delete;
  ZeroedArray& operator=(const ZeroedArray&) = delete;

  [[nodiscard]] Element& operator[](std::size_t index) noexcept { return first_[index]; }
  [[nodiscard]] Element* begin() noexcept { return first_; }
  [[nodiscard]] Element* end() noexcept { return first_ + size_; }

 private:
  std::size_t size_;
  Element* first_ = nullptr;
};

}  // namespace kiln::engine

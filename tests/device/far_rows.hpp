// Matrices of more elements than 32 bits count, of which only the rows take memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

namespace test {

/// Three rows, `stride` elements apart and 16 bytes past the beginning of a page. Memory between them cannot be accessed, so that an
/// index cut to 32 bits ends the test.
template <typename T>
class FarRows {
 public:
  static constexpr std::int64_t rows = 3;

  FarRows(std::int64_t columns, std::int64_t stride) : stride_(stride) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const auto in_pages = [page](std::size_t bytes) { return (bytes + page - 1) / page * page; };
    bytes_ = in_pages(static_cast<std::size_t>((rows - 1) * stride + columns) * sizeof(T) + before) + page;
    base_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::size_t first = static_cast<std::size_t>(row * stride) * sizeof(T) + before,
                        begin = first / page * page;
      const std::size_t end = first + static_cast<std::size_t>(columns) * sizeof(T);
      if (mprotect(static_cast<std::byte*>(base_) + begin, in_pages(end - begin), PROT_READ | PROT_WRITE) != 0)
        throw std::bad_alloc();
    }
  }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;
  ~FarRows() { munmap(base_, bytes_); }

  T* data() { return reinterpret_cast<T*>(static_cast<std::byte*>(base_) + before); }
  T& at(std::int64_t row, std::int64_t column) { return data()[row * stride_ + column]; }
  [[nodiscard]] std::int64_t stride() const { return stride_; }

 private:
  static constexpr std::size_t before = 16;
  std::int64_t stride_;
  std::size_t bytes_;
  void* base_;
};

}  // namespace test

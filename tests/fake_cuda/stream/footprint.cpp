#include "stream/footprint.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "driver/errors.hpp"

namespace fake_cuda {

Footprint::~Footprint() {
  if (code_ != nullptr) munmap(code_, lines_ * line);
}

/// x86-64: each line jumps to another, so far away that no prefetcher guesses it; the last returns.
void Footprint::make(std::size_t lines) {
#if !defined(__x86_64__)
  throw Failure{CUDA_ERROR_NOT_SUPPORTED};
#endif
  if (code_ != nullptr) munmap(code_, lines_ * line);
  code_ = nullptr;
  void* memory = mmap(nullptr, lines * line, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  code_ = static_cast<unsigned char*>(memory);
  lines_ = lines;
  const std::size_t step = lines * 5 / 8 | 1;  // odd, and `lines` a power of two: every line has its turn
  for (std::size_t i = 0, at = 0; i < lines; ++i) {
    constexpr unsigned char jump = 0xE9, leave = 0xC3;
    constexpr std::size_t bytes_of_jump = 5;
    const std::size_t next = (at + step) % lines;
    const auto distance = static_cast<std::int32_t>((static_cast<std::int64_t>(next) - static_cast<std::int64_t>(at)) *
                                                        static_cast<std::int64_t>(line) -
                                                    static_cast<std::int64_t>(bytes_of_jump));
    code_[at * line] = i + 1 < lines ? jump : leave;
    std::memcpy(code_ + at * line + 1, &distance, sizeof distance);
    at = next;
  }
  require(mprotect(code_, lines * line, PROT_READ | PROT_EXEC) == 0, CUDA_ERROR_NOT_PERMITTED);
  data_.assign(lines * line, 1);
}

void Footprint::walk(std::size_t bytes) {
  std::size_t lines = 1;
  while (lines * line < bytes) lines *= 2;
  if (lines != lines_) make(lines);
  reinterpret_cast<void (*)()>(code_)();
  for (std::size_t i = 0; i < lines; ++i) {
    volatile unsigned char& byte = data_[i * line];
    byte = static_cast<unsigned char>(byte + 1);
  }
}

}  // namespace fake_cuda

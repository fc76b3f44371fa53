// What a launch of the real driver does to a processor, without what it is for: code and data of a size are walked, so that the caller's
// are no longer in the caches nearest to the processor when it goes on.
#pragma once

#include <cstddef>
#include <vector>

namespace fake_cuda {

class Footprint {
 public:
  Footprint() = default;
  ~Footprint();
  Footprint(const Footprint&) = delete;
  Footprint& operator=(const Footprint&) = delete;
  /// Executes so many bytes of code and reads as many of data, a cache line at a time. One thread at a time.
  void walk(std::size_t bytes);

 private:
  static constexpr std::size_t line = 64;
  void make(std::size_t lines);

  std::vector<unsigned char> data_;
  unsigned char* code_ = nullptr;
  std::size_t lines_ = 0;
};

}  // namespace fake_cuda

// What a cubin says of itself: an ELF file whose .nv.info sections describe each kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fake_cuda {

struct CubinKernel {
  std::string name;                      // as the linker knows it
  std::vector<std::int64_t> parameters;  // bytes of each
  std::int64_t registers = 0;
  std::int64_t static_shared = 0;  // bytes
  std::int64_t local = 0;          // bytes a thread
  std::int64_t max_threads = 1024;
};

struct Cubin {
  std::int64_t sm = 0;  // 90 for sm_90 and sm_90a
  std::vector<CubinKernel> kernels;
};

/// Nothing for what is no cubin. The image is as long as its own headers say, as it is for the real driver.
std::optional<Cubin> read_cubin(const void* image);

}  // namespace fake_cuda

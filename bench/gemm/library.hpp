// cuBLASLt as the peer: y = x W^T by each algorithm that its heuristic proposes. Opened at run time, so that the bench builds without it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device.hpp"

namespace bench {

struct LibraryFunctions;

/// The library and a handle of it.
class Library {
 public:
  /// $KILN_CUBLASLT_LIBRARY, else libcublasLt.so.13 or .so.12 of the loader's path, a Python wheel, a toolkit; nothing where that variable
  /// is "none". A context must be current. Throws Error(io) naming what was tried, or what it lacks.
  static std::optional<Library> open();
  [[nodiscard]] std::string version() const;  // "13.1.0"
  [[nodiscard]] const LibraryFunctions& functions() const noexcept { return *functions_; }
  [[nodiscard]] void* handle() const noexcept { return handle_; }

 private:
  std::shared_ptr<const LibraryFunctions> functions_;
  void* handle_ = nullptr;  // lives as long as the process
};

/// x is [m, k], w is [n, k], y is [m, n], each dense in rows. The scales, one f32 each that x and w are multiplied by, may be null; they
/// are for 8-bit types.
struct Operands {
  std::int64_t m = 0, n = 0, k = 0;
  kiln::spec::DType x_type = kiln::spec::DType::bf16, w_type = x_type, y_type = x_type;
  const void *x = nullptr, *w = nullptr, *x_scale = nullptr, *w_scale = nullptr;
  void* y = nullptr;
};

/// One product and the ways in which the library would do it.
class LibraryProduct {
 public:
  /// Asks the heuristic for at most `most` algorithms, best first, that need no more than `workspace`. `fast_accumulation`: 8-bit
  /// products are summed in the tensor cores' own precision all along. Throws Error(bad_input) for what the library refuses.
  LibraryProduct(const Library& library, const Operands& operands, const kiln::cuda::Buffer& workspace, int most,
                 bool fast_accumulation);
  ~LibraryProduct();
  LibraryProduct(const LibraryProduct&) = delete;
  LibraryProduct& operator=(const LibraryProduct&) = delete;

  [[nodiscard]] std::size_t algorithms() const noexcept { return algorithms_.size(); }
  /// Throws Error(driver_failed) when the library refuses to.
  void launch(std::size_t algorithm, CUstream stream) const;

 private:
  struct Algorithm {
    std::array<std::uint64_t, 8> words;  // the library's own
  };
  void describe(bool fast_accumulation);
  void ask(int most);
  void destroy() noexcept;

  const Library& library_;
  Operands operands_;
  const kiln::cuda::Buffer& workspace_;
  void *product_ = nullptr, *x_layout_ = nullptr, *w_layout_ = nullptr, *y_layout_ = nullptr;
  std::vector<Algorithm> algorithms_;
};

}  // namespace bench

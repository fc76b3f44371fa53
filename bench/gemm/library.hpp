// cuBLASLt as the peer: y = x W^T by each algorithm that its heuristic proposes. Opened at run time, so that the bench builds without it.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/cublaslt_api.hpp"
#include "cuda/device.hpp"

namespace bench {

/// Null where KILN_CUBLASLT_LIBRARY is "none", for Kiln alone. Throws Error(no_cublaslt) where none can be opened.
const kiln::cuda::CublasLt* open_library();

/// x is [m, k] or [k, m], w is [n, k] or [k, n], y is [m, n], each dense in rows. The scales, one f32 each that x and w are multiplied by, may be null; they
/// are for 8-bit types.
struct Operands {
  std::int64_t m = 0, n = 0, k = 0;
  bool x_has_rows_of_k = true, w_has_rows_of_k = true;
  kiln::manifest::DType x_type = kiln::manifest::DType::bf16, w_type = x_type, y_type = x_type;
  const void *x = nullptr, *w = nullptr, *x_scale = nullptr, *w_scale = nullptr;
  void* y = nullptr;
};

/// One product and the ways in which the library would do it.
class LibraryProduct {
 public:
  /// Asks the heuristic for at most `most` algorithms, best first, that need no more than `workspace`. `fast_accumulation`: 8-bit
  /// products are summed in the tensor cores' own precision all along. A context must be current. Throws Error(bad_input) for what the
  /// library refuses.
  LibraryProduct(const kiln::cuda::CublasLt& library, const Operands& operands, const kiln::cuda::Buffer& workspace,
                 int most, bool fast_accumulation);

  [[nodiscard]] std::size_t algorithms() const noexcept { return algorithms_.size(); }
  /// Throws Error(driver_failed) when the library refuses to.
  void launch(std::size_t algorithm, CUstream stream) const;

 private:
  void describe(bool fast_accumulation);
  void ask(int most);

  const kiln::cuda::CublasLt& library_;
  Operands operands_;
  const kiln::cuda::Buffer& workspace_;
  mutable CublasLtMatmulDesc product_{};  // what the library reads it takes by plain pointers
  mutable CublasLtMatrixLayout x_layout_{}, w_layout_{}, y_layout_{};
  std::vector<CublasLtMatmulAlgo> algorithms_;
};

}  // namespace bench

// Describes a product to cuBLASLt.
//
// Row-major d[m, n] = op(a) op(b) is d^T = op(b)^T op(a)^T to a column-major library. So b is its first operand, each
// [rows, columns] matrix becomes [columns, rows] with the same leading dimension, and the bias runs along rows.
// In a batch each matrix and the bias have a stride from one product to the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cuda/cublaslt_api.hpp"
#include "kiln/arguments.hpp"
#include "manifest/formula.hpp"
#include "manifest/op.hpp"

namespace kiln::jit {

/// Returns nothing for a type that the library does not multiply.
std::optional<cudaDataType_t> library_type(manifest::DType type);

class LibraryProduct {
 public:
  struct Layouts {
    CublasLtMatrixLayout a, b, c, d;
    std::int64_t bias_stride;  // elements from one product's bias to the next
  };
  /// The operands of one call. The bias may be null. A scale is null where the product has none.
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* c = nullptr;
    const void* bias = nullptr;
    const void* a_scale = nullptr;
    const void* b_scale = nullptr;
    void* d = nullptr;
    void* workspace = nullptr;
    float alpha = 1;
  };

  /// Folds the expressions over `frame` (manifest::Variant::frame). Precondition: a context is current. Throws
  /// Error(no_cublaslt), or Error(bad_manifest) for a product that the library lacks and that the manifest's 'requires'
  /// must exclude.
  LibraryProduct(const manifest::Op& op, const manifest::Implementation& implementation,
                 std::span<const std::int64_t> frame);

  /// Sets the layouts to the sizes of a frame, whose dynamic part alone is read. Returns false when a size overflows.
  [[nodiscard]] bool lay_out(std::span<const std::int64_t> frame, Layouts& layouts) const noexcept;
  /// Enqueues the product. Neither allocates nor locks, apart from the library itself.
  [[nodiscard]] cublasStatus_t multiply(Layouts& layouts, const Operands& of, const CublasLtMatmulAlgo& algorithm,
                                        std::size_t workspace_bytes, CUstream stream) const noexcept;
  /// Returns the operands of a launch. Reads only the dynamic part of its frame.
  [[nodiscard]] Operands operands(const Arguments& arguments, std::span<const std::int64_t> frame,
                                  void* workspace) const noexcept;
  /// Returns operands with every tensor at one address, for calls that do not run.
  [[nodiscard]] Operands all_at(void* address, bool biased) const noexcept;

  [[nodiscard]] const cuda::CublasLt& library() const noexcept { return *library_; }
  [[nodiscard]] cublasLtHandle_t handle() const noexcept { return handle_; }
  [[nodiscard]] bool has_bias() const noexcept { return bias_ >= 0; }
  /// The description with the bias, where the product has one.
  [[nodiscard]] CublasLtMatmulDesc description() const noexcept { return has_bias() ? biased_ : plain_; }
  [[nodiscard]] CublasLtMatmulDesc description_without_bias() const noexcept { return plain_; }
  /// The types of the library's operands: b, a, c, d.
  [[nodiscard]] std::array<cudaDataType_t, 4> types() const noexcept { return {b_.type, a_.type, c_.type, d_.type}; }

 private:
  struct Matrix {
    std::size_t tensor = 0;
    cudaDataType_t type = CUDA_R_32F;
    manifest::Formula rows, columns, stride;
    manifest::Formula batch_stride;  // 0 for one product
  };
  [[nodiscard]] static Matrix matrix_of(const manifest::Op& op, int tensor, std::span<const std::int64_t> frame);
  [[nodiscard]] bool lay_out(const Matrix& matrix, std::span<const std::int64_t> frame, std::int32_t batch,
                             CublasLtMatrixLayout& layout) const noexcept;
  [[nodiscard]] CublasLtMatmulDesc describe(const manifest::Matmul& matmul, bool biased,
                                            std::span<const std::int64_t> frame) const;

  const cuda::CublasLt* library_;
  cublasLtHandle_t handle_;
  Matrix a_, b_, d_;
  Matrix c_;                               // d where nothing is added
  bool adds_;                              // c is added
  int bias_, a_scale_, b_scale_;           // tensors, or -1
  int alpha_;                              // slot of the frame, or -1
  bool batched_;                           // matrices are of rank 3
  manifest::Formula batch_, bias_stride_;  // of a batch: products, and elements
  CublasLtMatmulDesc plain_, biased_;      // a launch copies one and sets addresses there
};

}  // namespace kiln::jit

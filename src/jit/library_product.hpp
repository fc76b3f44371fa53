// A product as cuBLASLt is told of it.
//
// Row-major d[m, n] = op(a) op(b) is, to a library that counts in columns, the transpose of it: d^T = op(b)^T op(a)^T. So b goes first,
// each matrix of [rows, columns] is one of [columns, rows] with the same leading dimension, and the bias runs along its rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/cublaslt_api.hpp"
#include "spec/formula.hpp"
#include "spec/op.hpp"

namespace kiln::jit {

class LibraryProduct {
 public:
  struct Layouts {
    CublasLtMatrixLayout a, b, d;
  };
  struct Addresses {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    void* d = nullptr;
    void* workspace = nullptr;
  };

  /// With what `frame` (spec::make_frame) fixes. A context must be current. Throws Error(no_cublaslt), Error(bad_manifest) for a type
  /// that the library does not have.
  LibraryProduct(const spec::Op& op, const spec::Implementation& implementation, std::span<const std::int64_t> frame);

  /// At the sizes of a frame, of which only its dynamic part is read. False when they do not compute.
  [[nodiscard]] bool lay_out(std::span<const std::int64_t> frame, Layouts& layouts) const noexcept;
  /// Enqueues it. No allocation and no lock but the library's own.
  [[nodiscard]] cublasStatus_t multiply(Layouts& layouts, const Addresses& at, const CublasLtMatmulAlgo& algorithm,
                                        std::size_t workspace_bytes, CUstream stream) const noexcept;
  /// The addresses of a launch whose tensors begin at `tensors`.
  [[nodiscard]] Addresses addresses(std::span<const void* const> tensors, void* workspace) const noexcept {
    return {tensors[a_.tensor], tensors[b_.tensor], bias_ < 0 ? nullptr : tensors[static_cast<std::size_t>(bias_)],
            const_cast<void*>(tensors[d_.tensor]), workspace};
  }

  [[nodiscard]] const cuda::CublasLt& library() const noexcept { return *library_; }
  [[nodiscard]] cublasLtHandle_t handle() const noexcept { return handle_; }
  [[nodiscard]] bool has_bias() const noexcept { return bias_ >= 0; }
  /// With the bias where there is one.
  [[nodiscard]] CublasLtMatmulDesc description() const noexcept { return bias_ < 0 ? plain_ : biased_; }
  [[nodiscard]] CublasLtMatmulDesc description_without_bias() const noexcept { return plain_; }
  /// Of the library's operands: its first is b.
  [[nodiscard]] std::array<cudaDataType_t, 3> types() const noexcept { return {b_.type, a_.type, d_.type}; }

 private:
  struct Matrix {
    std::size_t tensor = 0;
    cudaDataType_t type = CUDA_R_32F;
    spec::Formula rows, columns, stride;
  };
  [[nodiscard]] static Matrix matrix_of(const spec::Op& op, int tensor, std::span<const std::int64_t> frame);
  [[nodiscard]] bool lay_out(const Matrix& matrix, std::span<const std::int64_t> frame,
                             CublasLtMatrixLayout& layout) const noexcept;
  [[nodiscard]] CublasLtMatmulDesc describe(const spec::Matmul& matmul, bool biased,
                                            std::span<const std::int64_t> frame) const;

  const cuda::CublasLt* library_;
  cublasLtHandle_t handle_;
  Matrix a_, b_, d_;
  int bias_;                           // tensor, or -1
  CublasLtMatmulDesc plain_, biased_;  // a launch copies one and sets the bias's address there
};

}  // namespace kiln::jit

// A product as cuBLASLt is told of it.
//
// Row-major d[m, n] = op(a) op(b) is, to a library that counts in columns, the transpose of it: d^T = op(b)^T op(a)^T. So b goes first,
// each matrix of [rows, columns] is one of [columns, rows] with the same leading dimension, and the bias runs along its rows. A batch of
// products lies at distances of its own from one matrix, and one bias, to the next.
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

/// Nothing for a type that the library does not multiply.
std::optional<cudaDataType_t> library_type(manifest::DType type);

class LibraryProduct {
 public:
  struct Layouts {
    CublasLtMatrixLayout a, b, c, d;
    std::int64_t bias_stride;  // from one product's bias to the next
  };
  /// What one call is given. The bias may be null; a scale is where the product has one.
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

  /// With what `frame` (manifest::make_frame) fixes. A context must be current. Throws Error(no_cublaslt), Error(bad_manifest) for what the
  /// library does not have, and 'requires' must leave out.
  LibraryProduct(const manifest::Op& op, const manifest::Implementation& implementation,
                 std::span<const std::int64_t> frame);

  /// At the sizes of a frame, of which only its dynamic part is read. False when they do not compute.
  [[nodiscard]] bool lay_out(std::span<const std::int64_t> frame, Layouts& layouts) const noexcept;
  /// Enqueues it. No allocation and no lock but the library's own.
  [[nodiscard]] cublasStatus_t multiply(Layouts& layouts, const Operands& of, const CublasLtMatmulAlgo& algorithm,
                                        std::size_t workspace_bytes, CUstream stream) const noexcept;
  /// Those of a launch, with the dynamic part of its frame.
  [[nodiscard]] Operands operands(const Arguments& arguments, std::span<const std::int64_t> frame,
                                  void* workspace) const noexcept;
  /// With every tensor at one address, with a bias or without: for calls that do not run.
  [[nodiscard]] Operands all_at(void* address, bool biased) const noexcept;

  [[nodiscard]] const cuda::CublasLt& library() const noexcept { return *library_; }
  [[nodiscard]] cublasLtHandle_t handle() const noexcept { return handle_; }
  [[nodiscard]] bool has_bias() const noexcept { return bias_ >= 0; }
  /// With the bias where there is one.
  [[nodiscard]] CublasLtMatmulDesc description() const noexcept { return has_bias() ? biased_ : plain_; }
  [[nodiscard]] CublasLtMatmulDesc description_without_bias() const noexcept { return plain_; }
  /// Of the library's operands: its first is b.
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
  Matrix c_;                               // d itself where nothing is added
  bool adds_;                              // c
  int bias_, a_scale_, b_scale_;           // tensors, or -1
  int alpha_;                              // slot of the frame, or -1
  bool batched_;                           // matrices are of rank 3
  manifest::Formula batch_, bias_stride_;  // of a batch
  CublasLtMatmulDesc plain_, biased_;      // a launch copies one and sets addresses there
};

}  // namespace kiln::jit

#include "jit/library_product.hpp"

#include <fmt/format.h>

#include <optional>

#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::uintptr_t bias_alignment = 16;  // told by an address, where none is read through

std::optional<cudaDataType_t> library_type(spec::DType type) {
  switch (type) {
    case spec::DType::bf16: return CUDA_R_16BF;
    case spec::DType::f16: return CUDA_R_16F;
    case spec::DType::f32: return CUDA_R_32F;
    case spec::DType::e4m3: return CUDA_R_8F_E4M3;
    case spec::DType::e5m2: return CUDA_R_8F_E5M2;
    default: return std::nullopt;
  }
}

void must_succeed(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorKind::driver_failed, fmt::format("cuBLASLt: {}: {}", what, cuda::describe(status)));
}

}  // namespace

LibraryProduct::LibraryProduct(const spec::Op& op, const spec::Implementation& implementation,
                               std::span<const std::int64_t> frame)
    : library_(&cuda::CublasLt::get()),
      handle_(cuda::CublasLt::handle()),
      a_(matrix_of(op, implementation.matmul.a, frame)),
      b_(matrix_of(op, implementation.matmul.b, frame)),
      d_(matrix_of(op, implementation.matmul.d, frame)),
      bias_(implementation.matmul.bias),
      plain_(describe(implementation.matmul, false, frame)),
      biased_(describe(implementation.matmul, true, frame)) {}

LibraryProduct::Matrix LibraryProduct::matrix_of(const spec::Op& op, int tensor, std::span<const std::int64_t> frame) {
  const spec::Tensor& of = op.tensors[static_cast<std::size_t>(tensor)];
  const spec::DType dtype = op.dtype_of(of, frame);
  const auto type = library_type(dtype);
  if (!type)
    throw Error(ErrorKind::bad_manifest,
                fmt::format("{}: tensor '{}' is {}, which cuBLASLt does not multiply; 'requires' must say so", op.name,
                            of.name, to_string(dtype)));
  const auto formula = [&](const spec::Expression& expression) {
    return spec::Formula(expression.specialise(frame, op.first_static()));
  };
  return {static_cast<std::size_t>(tensor), *type, formula(of.shape[1]), formula(of.shape[0]), formula(of.strides[0])};
}

CublasLtMatmulDesc LibraryProduct::describe(const spec::Matmul& matmul, bool biased,
                                            std::span<const std::int64_t> frame) const {
  CublasLtMatmulDesc description{};
  must_succeed(
      library_->cublasLtMatmulDescInit_internal(&description, sizeof description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "describing a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    must_succeed(library_->cublasLtMatmulDescSetAttribute(&description, attribute, &value, sizeof value),
                 "describing a product");
  };
  const auto operation = [&](const spec::Expression& transposed) {
    return transposed.evaluate(frame).truth() ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(matmul.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(matmul.transpose_a));
  const bool relu = matmul.relu.evaluate(frame).truth();
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, biased ? (relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                            : (relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT));
  if (biased) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_alignment);
  return description;
}

bool LibraryProduct::lay_out(const Matrix& matrix, std::span<const std::int64_t> frame,
                             CublasLtMatrixLayout& layout) const noexcept {
  std::int64_t rows = 0, columns = 0, stride = 0;
  if (!matrix.rows.evaluate(frame, rows) || !matrix.columns.evaluate(frame, columns) ||
      !matrix.stride.evaluate(frame, stride))
    return false;
  return library_->cublasLtMatrixLayoutInit_internal(
             &layout, sizeof layout, matrix.type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
             stride) == CUBLAS_STATUS_SUCCESS;
}

bool LibraryProduct::lay_out(std::span<const std::int64_t> frame, Layouts& layouts) const noexcept {
  return lay_out(a_, frame, layouts.a) && lay_out(b_, frame, layouts.b) && lay_out(d_, frame, layouts.d);
}

cublasStatus_t LibraryProduct::multiply(Layouts& layouts, const Addresses& at, const CublasLtMatmulAlgo& algorithm,
                                        std::size_t workspace_bytes, CUstream stream) const noexcept {
  constexpr float one = 1, zero = 0;
  CublasLtMatmulDesc description = at.bias != nullptr ? biased_ : plain_;
  if (at.bias != nullptr) {
    const cublasStatus_t status = library_->cublasLtMatmulDescSetAttribute(
        &description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at.bias, sizeof at.bias);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return library_->cublasLtMatmul(handle_, &description, &one, at.b, &layouts.b, at.a, &layouts.a, &zero, at.d,
                                  &layouts.d, at.d, &layouts.d, &algorithm, at.workspace, workspace_bytes, stream);
}

}  // namespace kiln::jit

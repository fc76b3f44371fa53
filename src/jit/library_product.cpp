#include "jit/library_product.hpp"

#include <fmt/format.h>

#include <bit>
#include <limits>

#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::uintptr_t bias_alignment = 16;  // passed as an address, which no call dereferences

void must_succeed(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorKind::driver_failed, fmt::format("cuBLASLt: {}: {}", what, cuda::describe(status)));
}

/// Returns `tensor` if it takes part for these types and choices, else -1.
int present(const manifest::Op& op, int tensor, std::span<const std::int64_t> frame) {
  return tensor >= 0 && manifest::Op::takes_part(op.tensors[static_cast<std::size_t>(tensor)], frame) ? tensor : -1;
}

/// Returns the tensor that is added to the product: c, d, or -1 for none. Throws Error(bad_manifest) for both.
int added_to(const manifest::Op& op, const manifest::Matmul& matmul, std::span<const std::int64_t> frame) {
  const int c = present(op, matmul.c, frame);
  if (!manifest::Op::is_initialised(op.tensors[static_cast<std::size_t>(matmul.d)], frame)) return c;
  if (c < 0) return matmul.d;
  throw Error(ErrorKind::bad_manifest,
              op.name + ": cuBLASLt adds one matrix to a product, not c and d both; 'requires' must leave this out");
}

manifest::Formula formula_of(const manifest::Op& op, const manifest::Expression& expression,
                             std::span<const std::int64_t> frame) {
  return manifest::Formula(expression.specialise(frame, op.first_static()));
}

}  // namespace

std::optional<cudaDataType_t> library_type(manifest::DType type) {
  switch (type) {
    case manifest::DType::bf16: return CUDA_R_16BF;
    case manifest::DType::f16: return CUDA_R_16F;
    case manifest::DType::f32: return CUDA_R_32F;
    case manifest::DType::e4m3: return CUDA_R_8F_E4M3;
    case manifest::DType::e5m2: return CUDA_R_8F_E5M2;
    default: return std::nullopt;
  }
}

LibraryProduct::LibraryProduct(const manifest::Op& op, const manifest::Implementation& implementation,
                               std::span<const std::int64_t> frame)
    : library_(&cuda::CublasLt::get()),
      handle_(cuda::CublasLt::handle()),
      a_(matrix_of(op, implementation.matmul.a, frame)),
      b_(matrix_of(op, implementation.matmul.b, frame)),
      d_(matrix_of(op, implementation.matmul.d, frame)),
      c_(d_),
      adds_(false),
      bias_(present(op, implementation.matmul.bias, frame)),
      a_scale_(present(op, implementation.matmul.a_scale, frame)),
      b_scale_(present(op, implementation.matmul.b_scale, frame)),
      alpha_(implementation.matmul.alpha < 0 ? -1 : op.first_runtime() + implementation.matmul.alpha),
      batched_(op.tensors[d_.tensor].shape.size() == 3),
      plain_(describe(implementation.matmul, false, frame)),
      biased_(plain_) {
  if (const int added = added_to(op, implementation.matmul, frame); added >= 0) {
    c_ = matrix_of(op, added, frame);
    adds_ = true;
  }
  if (batched_) batch_ = formula_of(op, op.tensors[d_.tensor].shape[0], frame);
  if (!has_bias()) return;
  biased_ = describe(implementation.matmul, true, frame);
  const manifest::Tensor& bias = op.tensors[static_cast<std::size_t>(bias_)];
  if (batched_) {
    bias_stride_ = formula_of(op, bias.strides[0], frame);
    std::int64_t stride = 0;
    if (bias_stride_.evaluate(frame, stride))
      must_succeed(library_->cublasLtMatmulDescSetAttribute(&biased_, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &stride,
                                                            sizeof stride),
                   "describing a bias");
  }
  const auto type = library_type(op.dtype_of(bias, frame));
  const auto value = static_cast<std::int32_t>(type.value_or(d_.type));
  must_succeed(
      library_->cublasLtMatmulDescSetAttribute(&biased_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &value, sizeof value),
      "describing a bias");
}

LibraryProduct::Matrix LibraryProduct::matrix_of(const manifest::Op& op, int tensor,
                                                 std::span<const std::int64_t> frame) {
  const manifest::Tensor& of = op.tensors[static_cast<std::size_t>(tensor)];
  const manifest::DType dtype = op.dtype_of(of, frame);
  const auto type = library_type(dtype);
  if (!type)
    throw Error(ErrorKind::bad_manifest,
                fmt::format("{}: tensor '{}' is {}, which cuBLASLt does not multiply; 'requires' must leave this out",
                            op.name, of.name, to_string(dtype)));
  const std::size_t outer = of.shape.size() - 2;  // 1 in a batch
  return {static_cast<std::size_t>(tensor),
          *type,
          formula_of(op, of.shape[outer + 1], frame),
          formula_of(op, of.shape[outer], frame),
          formula_of(op, of.strides[outer], frame),
          outer == 0 ? manifest::Formula() : formula_of(op, of.strides[0], frame)};
}

CublasLtMatmulDesc LibraryProduct::describe(const manifest::Matmul& matmul, bool biased,
                                            std::span<const std::int64_t> frame) const {
  CublasLtMatmulDesc description{};
  must_succeed(
      library_->cublasLtMatmulDescInit_internal(&description, sizeof description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "describing a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    must_succeed(library_->cublasLtMatmulDescSetAttribute(&description, attribute, &value, sizeof value),
                 "describing a product");
  };
  const auto operation = [&](const manifest::Expression& transposed) {
    return transposed.evaluate(frame).truth() ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(matmul.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(matmul.transpose_a));
  const bool relu = matmul.relu.evaluate(frame).truth();
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, biased ? (relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                            : (relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT));
  if (biased) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_alignment);
  if (b_scale_ >= 0) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, bias_alignment);
  if (a_scale_ >= 0) set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, bias_alignment);
  return description;
}

bool LibraryProduct::lay_out(const Matrix& matrix, std::span<const std::int64_t> frame, std::int32_t batch,
                             CublasLtMatrixLayout& layout) const noexcept {
  std::int64_t rows = 0, columns = 0, stride = 0, batch_stride = 0;
  if (!matrix.rows.evaluate(frame, rows) || !matrix.columns.evaluate(frame, columns) ||
      !matrix.stride.evaluate(frame, stride) || !matrix.batch_stride.evaluate(frame, batch_stride))
    return false;
  if (library_->cublasLtMatrixLayoutInit_internal(&layout, sizeof layout, matrix.type, static_cast<std::uint64_t>(rows),
                                                  static_cast<std::uint64_t>(columns), stride) != CUBLAS_STATUS_SUCCESS)
    return false;
  if (!batched_) return true;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    return library_->cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  return set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch) &&
         set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
}

bool LibraryProduct::lay_out(std::span<const std::int64_t> frame, Layouts& layouts) const noexcept {
  std::int64_t count = 1;
  if (batched_ && (!batch_.evaluate(frame, count) || !bias_stride_.evaluate(frame, layouts.bias_stride) || count < 1 ||
                   count > std::numeric_limits<std::int32_t>::max()))
    return false;
  const auto batch = static_cast<std::int32_t>(count);
  if (!lay_out(a_, frame, batch, layouts.a) || !lay_out(b_, frame, batch, layouts.b) ||
      !lay_out(d_, frame, batch, layouts.d))
    return false;
  if (adds_ && c_.tensor != d_.tensor) return lay_out(c_, frame, batch, layouts.c);
  layouts.c = layouts.d;
  return true;
}

LibraryProduct::Operands LibraryProduct::operands(const Arguments& arguments, std::span<const std::int64_t> frame,
                                                  void* workspace) const noexcept {
  const auto at = [&](int tensor) {
    return tensor < 0 ? nullptr : arguments.tensors[static_cast<std::size_t>(tensor)];
  };
  Operands of;
  of.a = arguments.tensors[a_.tensor];
  of.b = arguments.tensors[b_.tensor];
  of.c = arguments.tensors[c_.tensor];
  of.bias = at(bias_);
  of.a_scale = at(a_scale_);
  of.b_scale = at(b_scale_);
  of.d = const_cast<void*>(arguments.tensors[d_.tensor]);
  of.workspace = workspace;
  if (alpha_ >= 0) of.alpha = std::bit_cast<float>(static_cast<std::uint32_t>(frame[static_cast<std::size_t>(alpha_)]));
  return of;
}

LibraryProduct::Operands LibraryProduct::all_at(void* address, bool biased) const noexcept {
  return {address, address, address, biased ? address : nullptr, address, address, address, address, 1};
}

cublasStatus_t LibraryProduct::multiply(Layouts& layouts, const Operands& of, const CublasLtMatmulAlgo& algorithm,
                                        std::size_t workspace_bytes, CUstream stream) const noexcept {
  CublasLtMatmulDesc description = of.bias != nullptr ? biased_ : plain_;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return library_->cublasLtMatmulDescSetAttribute(&description, attribute, &value, sizeof value);
  };
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (of.bias != nullptr) status = set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, of.bias);
  if (of.bias != nullptr && batched_ && status == CUBLAS_STATUS_SUCCESS)
    status = set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, layouts.bias_stride);
  if (b_scale_ >= 0 && status == CUBLAS_STATUS_SUCCESS) status = set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of.b_scale);
  if (a_scale_ >= 0 && status == CUBLAS_STATUS_SUCCESS) status = set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of.a_scale);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const float beta = adds_ ? 1 : 0;
  return library_->cublasLtMatmul(handle_, &description, &of.alpha, of.b, &layouts.b, of.a, &layouts.a, &beta, of.c,
                                  &layouts.c, of.d, &layouts.d, &algorithm, of.workspace, workspace_bytes, stream);
}

}  // namespace kiln::jit

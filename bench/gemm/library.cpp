#include "gemm/library.hpp"

#include <fmt/format.h>

#include "cuda/library.hpp"
#include "jit/library_product.hpp"
#include "kiln/error.hpp"

namespace bench {
namespace {

using kiln::cuda::CublasLt;
using kiln::manifest::DType;

cudaDataType_t data_type(DType type) {
  if (const auto known = kiln::jit::library_type(type)) return *known;
  throw kiln::Error(kiln::ErrorKind::bad_input,
                    fmt::format("cuBLASLt is asked for {} here, expected a floating type of 8 to 32 bits",
                                kiln::manifest::to_string(type)));
}

void check(cublasStatus_t status, const char* what, kiln::ErrorKind kind = kiln::ErrorKind::bad_input) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw kiln::Error(kind, fmt::format("{}: {}", what, kiln::cuda::describe(status)));
}

}  // namespace

const CublasLt* open_library() {
  return kiln::cuda::environment("KILN_CUBLASLT_LIBRARY") == "none" ? nullptr : &CublasLt::get();
}

LibraryProduct::LibraryProduct(const CublasLt& library, const Operands& operands, const kiln::cuda::Buffer& workspace,
                               int most, bool fast_accumulation)
    : library_(library), operands_(operands), workspace_(workspace) {
  describe(fast_accumulation);
  ask(most);
}

/// The library's matrices run down columns: what has rows of k here has columns of k there, and y^T = W x^T is what it is asked for, in layout nt.
void LibraryProduct::describe(bool fast_accumulation) {
  const auto lay_out = [&](CublasLtMatrixLayout& layout, DType type, std::int64_t rows, std::int64_t columns) {
    check(library_.cublasLtMatrixLayoutInit_internal(&layout, sizeof layout, data_type(type),
                                                     static_cast<std::uint64_t>(rows),
                                                     static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutInit");
  };
  const bool w_has_rows_of_k = operands_.w_has_rows_of_k, x_has_rows_of_k = operands_.x_has_rows_of_k;
  lay_out(w_layout_, operands_.w_type, w_has_rows_of_k ? operands_.k : operands_.n,
          w_has_rows_of_k ? operands_.n : operands_.k);
  lay_out(x_layout_, operands_.x_type, x_has_rows_of_k ? operands_.k : operands_.m,
          x_has_rows_of_k ? operands_.m : operands_.k);
  lay_out(y_layout_, operands_.y_type, operands_.n, operands_.m);
  check(library_.cublasLtMatmulDescInit_internal(&product_, sizeof product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescInit");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(library_.cublasLtMatmulDescSetAttribute(&product_, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, w_has_rows_of_k ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, x_has_rows_of_k ? CUBLAS_OP_N : CUBLAS_OP_T);
  if (operands_.w_scale != nullptr) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands_.w_scale);
  if (operands_.x_scale != nullptr) set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands_.x_scale);
  if (fast_accumulation) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
}

void LibraryProduct::ask(int most) {
  CublasLtMatmulPreference preference{};
  check(library_.cublasLtMatmulPreferenceInit_internal(&preference, sizeof preference), "cublasLtMatmulPreferenceInit");
  const auto bytes = static_cast<std::uint64_t>(workspace_.bytes());
  check(library_.cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                      sizeof bytes),
        "cublasLtMatmulPreferenceSetAttribute");
  std::vector<CublasLtMatmulHeuristicResult> results(static_cast<std::size_t>(most));
  int found = 0;
  check(library_.cublasLtMatmulAlgoGetHeuristic(CublasLt::handle(), &product_, &w_layout_, &x_layout_, &y_layout_,
                                                &y_layout_, &preference, most, results.data(), &found),
        "cublasLtMatmulAlgoGetHeuristic");
  results.resize(static_cast<std::size_t>(found));
  for (const CublasLtMatmulHeuristicResult& result : results)
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms_.push_back(result.algo);
}

void LibraryProduct::launch(std::size_t algorithm, CUstream stream) const {
  const float one = 1, zero = 0;
  check(library_.cublasLtMatmul(CublasLt::handle(), &product_, &one, operands_.w, &w_layout_, operands_.x, &x_layout_,
                                &zero, operands_.y, &y_layout_, operands_.y, &y_layout_, &algorithms_[algorithm],
                                reinterpret_cast<void*>(workspace_.pointer()),
                                static_cast<std::size_t>(workspace_.bytes()), stream),
        "cublasLtMatmul", kiln::ErrorKind::driver_failed);
}

}  // namespace bench

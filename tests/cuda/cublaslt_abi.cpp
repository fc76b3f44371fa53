// Our declarations of cuBLASLt's ABI against the toolkit's own, where there is a toolkit. Ours go into a namespace before cublasLt.h is read.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ours {
#include "cuda/cublaslt_api.hpp"
}

#include <doctest/doctest.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#elif __has_include("/usr/local/cuda/include/cublasLt.h")
#include "/usr/local/cuda/include/cublasLt.h"
#endif

#if defined(CUBLAS_VER_MAJOR) && CUBLAS_VER_MAJOR >= 12

#define SAME_VALUE(name) static_assert(static_cast<unsigned>(ours::name) == static_cast<unsigned>(::name))
#define SAME_SIZE(of_ours, theirs) static_assert(sizeof(ours::of_ours) == sizeof(::theirs))

SAME_SIZE(CublasLtMatrixLayout, cublasLtMatrixLayoutOpaque_t);
SAME_SIZE(CublasLtMatmulAlgo, cublasLtMatmulAlgo_t);
SAME_SIZE(CublasLtMatmulDesc, cublasLtMatmulDescOpaque_t);
SAME_SIZE(CublasLtMatmulPreference, cublasLtMatmulPreferenceOpaque_t);
SAME_SIZE(CublasLtMatmulHeuristicResult, cublasLtMatmulHeuristicResult_t);
static_assert(offsetof(ours::CublasLtMatmulHeuristicResult, workspace_bytes) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(ours::CublasLtMatmulHeuristicResult, state) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, state));
SAME_SIZE(cublasStatus_t, cublasStatus_t);
SAME_SIZE(cudaDataType_t, cudaDataType_t);
SAME_SIZE(cublasComputeType_t, cublasComputeType_t);
SAME_VALUE(CUBLAS_STATUS_SUCCESS);
SAME_VALUE(CUBLAS_STATUS_NOT_INITIALIZED);
SAME_VALUE(CUBLAS_STATUS_ALLOC_FAILED);
SAME_VALUE(CUBLAS_STATUS_INVALID_VALUE);
SAME_VALUE(CUBLAS_STATUS_ARCH_MISMATCH);
SAME_VALUE(CUBLAS_STATUS_EXECUTION_FAILED);
SAME_VALUE(CUBLAS_STATUS_INTERNAL_ERROR);
SAME_VALUE(CUBLAS_STATUS_NOT_SUPPORTED);
SAME_VALUE(CUDA_R_32F);
SAME_VALUE(CUDA_R_16F);
SAME_VALUE(CUDA_R_16BF);
SAME_VALUE(CUDA_R_8F_E4M3);
SAME_VALUE(CUDA_R_8F_E5M2);
SAME_VALUE(CUBLAS_COMPUTE_32F);
SAME_VALUE(CUBLAS_OP_N);
SAME_VALUE(CUBLAS_OP_T);
SAME_VALUE(CUBLASLT_EPILOGUE_DEFAULT);
SAME_VALUE(CUBLASLT_EPILOGUE_RELU);
SAME_VALUE(CUBLASLT_EPILOGUE_BIAS);
SAME_VALUE(CUBLASLT_EPILOGUE_RELU_BIAS);
SAME_VALUE(CUBLASLT_REDUCTION_SCHEME_INPLACE);
SAME_VALUE(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSA);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSB);
SAME_VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME_VALUE(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME_VALUE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
SAME_VALUE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
SAME_VALUE(CUBLASLT_MATMUL_DESC_FAST_ACCUM);
SAME_VALUE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_ID);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_TILE_ID);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_STAGES_ID);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
SAME_VALUE(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);

TEST_CASE("what is declared of cuBLASLt is what the toolkit declares") {}  // the compiler has checked it

#endif

// cuBLASLt as a table of functions, opened at first use: where it is missing, a record's config without a library
// serves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/driver_types.hpp"

typedef struct cublasLtContext* cublasLtHandle_t;

// The caller provides the memory; cuBLASLt alone defines its content.
struct CublasLtMatrixLayout {
  std::array<std::uint64_t, 8> data;
};
struct CublasLtMatmulAlgo {
  std::array<std::uint64_t, 8> data;
};
struct CublasLtMatmulDesc {
  std::array<std::uint64_t, 32> data;
};
struct CublasLtMatmulPreference {
  std::array<std::uint64_t, 8> data;
};

// The underlying types are fixed, because a newer library may return values that are not listed here.
typedef enum : unsigned int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
typedef enum : unsigned int {
  CUDA_R_32F = 0,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
  CUDA_R_8F_E4M3 = 28,
  CUDA_R_8F_E5M2 = 29
} cudaDataType_t;
typedef enum : unsigned int { CUBLAS_COMPUTE_32F = 68 } cublasComputeType_t;
typedef enum : std::int32_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum : std::uint32_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6
} cublasLtEpilogue_t;
typedef enum : std::uint32_t {
  CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2
} cublasLtReductionScheme_t;
typedef enum : unsigned int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
} cublasLtMatrixLayoutAttribute_t;
typedef enum : unsigned int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
  CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10,
  CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
  CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
  CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25,
  CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26
} cublasLtMatmulDescAttributes_t;
typedef enum : unsigned int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
} cublasLtMatmulPreferenceAttributes_t;
typedef enum : unsigned int {
  CUBLASLT_ALGO_CONFIG_ID = 0,
  CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
  CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
  CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
  CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING = 4,
  CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION = 5,
  CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
  CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID = 7,
  CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8,
  CUBLASLT_ALGO_CONFIG_UNNAMED = 10  // 16 bits that 13.1 stores with an algorithm; its header has no name for them
} cublasLtMatmulAlgoConfigAttributes_t;

struct CublasLtMatmulHeuristicResult {
  CublasLtMatmulAlgo algo;
  std::size_t workspace_bytes;
  cublasStatus_t state;
  float waves;
  std::array<int, 4> reserved;
};

// X(symbol, parameters); each returns cublasStatus_t and is exported by cuBLASLt 12 and newer.
#define KILN_CUBLASLT_FUNCTIONS(X)                                                                                    \
  X(cublasLtCreate, (cublasLtHandle_t * handle))                                                                      \
  X(cublasLtMatrixLayoutInit_internal, (CublasLtMatrixLayout * layout, std::size_t size, cudaDataType_t type,         \
                                        std::uint64_t rows, std::uint64_t columns, std::int64_t leading_dimension))   \
  X(cublasLtMatrixLayoutSetAttribute,                                                                                 \
    (CublasLtMatrixLayout * layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value, std::size_t size))  \
  X(cublasLtMatmulDescInit_internal,                                                                                  \
    (CublasLtMatmulDesc * desc, std::size_t size, cublasComputeType_t compute, cudaDataType_t scale))                 \
  X(cublasLtMatmulDescSetAttribute,                                                                                   \
    (CublasLtMatmulDesc * desc, cublasLtMatmulDescAttributes_t attribute, const void* value, std::size_t size))       \
  X(cublasLtMatmulPreferenceInit_internal, (CublasLtMatmulPreference * preference, std::size_t size))                 \
  X(cublasLtMatmulPreferenceSetAttribute,                                                                             \
    (CublasLtMatmulPreference * preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,        \
     std::size_t size))                                                                                               \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                                   \
    (cublasLtHandle_t handle, CublasLtMatmulDesc * desc, CublasLtMatrixLayout * a, CublasLtMatrixLayout * b,          \
     CublasLtMatrixLayout * c, CublasLtMatrixLayout * d, CublasLtMatmulPreference * preference, int asked,            \
     CublasLtMatmulHeuristicResult* results, int* found))                                                             \
  X(cublasLtMatmulAlgoInit,                                                                                           \
    (cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,  \
     cudaDataType_t c, cudaDataType_t d, int id, CublasLtMatmulAlgo* algo))                                           \
  X(cublasLtMatmulAlgoConfigSetAttribute,                                                                             \
    (CublasLtMatmulAlgo * algo, cublasLtMatmulAlgoConfigAttributes_t attribute, const void* value, std::size_t size)) \
  X(cublasLtMatmulAlgoConfigGetAttribute,                                                                             \
    (const CublasLtMatmulAlgo* algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void* value, std::size_t size,   \
     std::size_t* written))                                                                                           \
  X(cublasLtMatmulAlgoCheck, (cublasLtHandle_t handle, CublasLtMatmulDesc * desc, CublasLtMatrixLayout * a,           \
                              CublasLtMatrixLayout * b, CublasLtMatrixLayout * c, CublasLtMatrixLayout * d,           \
                              const CublasLtMatmulAlgo* algo, CublasLtMatmulHeuristicResult* result))                 \
  X(cublasLtMatmul, (cublasLtHandle_t handle, CublasLtMatmulDesc * desc, const void* alpha, const void* a,            \
                     CublasLtMatrixLayout* a_layout, const void* b, CublasLtMatrixLayout* b_layout, const void* beta, \
                     const void* c, CublasLtMatrixLayout* c_layout, void* d, CublasLtMatrixLayout* d_layout,          \
                     const CublasLtMatmulAlgo* algo, void* workspace, std::size_t workspace_bytes, CUstream stream))

namespace kiln::cuda {

struct CublasLt {
  std::size_t (*cublasLtGetVersion)() = nullptr;
#define KILN_DECLARE(symbol, parameters) cublasStatus_t(*symbol) parameters = nullptr;
  KILN_CUBLASLT_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE
  std::string version;  // "13.1.0"
  std::string path;     // of the library as loaded

  /// Opens $KILN_CUBLASLT_LIBRARY (a path; "none" hides the library) once a process. Where that is unset, opens the
  /// first libcublasLt.so.13 or .so.12 of the loader's path, a toolkit's lib64 and the Python wheels. Throws
  /// Error(no_cublaslt).
  static const CublasLt& get();
  /// Returns get(), or null where get() throws.
  static const CublasLt* find() noexcept;
  /// Opens `library`, as get() opens the value of $KILN_CUBLASLT_LIBRARY, on each call. Throws Error(no_cublaslt).
  static CublasLt open(const std::string& library);

  /// Returns the process's handle for the current context's device, which several threads may use at once. The first
  /// call for a device creates it. Throws Error(no_cublaslt) when the library cannot create one, and
  /// Error(driver_failed) without a current context.
  static cublasLtHandle_t handle();
};

/// Returns "CUBLAS_STATUS_NOT_SUPPORTED", for example, or "cuBLAS status N" for a status that is not listed above.
std::string describe(cublasStatus_t status);

}  // namespace kiln::cuda

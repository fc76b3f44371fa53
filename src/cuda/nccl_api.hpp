// NCCL as a table of functions, opened at first use: by a team that is made of a communicator of NCCL's, and by ops
// that NCCL may serve.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/driver_types.hpp"

typedef struct ncclComm* ncclComm_t;

typedef enum : unsigned int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;
typedef enum : unsigned int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
} ncclDataType_t;
typedef enum : unsigned int { ncclSum = 0 } ncclRedOp_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

// X(symbol, parameters); each returns ncclResult_t.
#define KILN_NCCL_FUNCTIONS(X)                                                                              \
  X(ncclGetVersion, (int* version))                                                                         \
  X(ncclGetUniqueId, (ncclUniqueId * id))                                                                   \
  X(ncclCommInitRank, (ncclComm_t * communicator, int world, ncclUniqueId id, int rank))                    \
  X(ncclCommDestroy, (ncclComm_t communicator))                                                             \
  X(ncclCommAbort, (ncclComm_t communicator))                                                               \
  X(ncclCommUserRank, (ncclComm_t communicator, int* rank))                                                 \
  X(ncclCommCount, (ncclComm_t communicator, int* count))                                                   \
  X(ncclCommCuDevice, (ncclComm_t communicator, int* device))                                               \
  X(ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t * state))                                 \
  X(ncclAllGather, (const void* source, void* destination, std::size_t count_each, ncclDataType_t type,     \
                    ncclComm_t communicator, CUstream stream))                                              \
  X(ncclReduceScatter, (const void* source, void* destination, std::size_t count_each, ncclDataType_t type, \
                        ncclRedOp_t operation, ncclComm_t communicator, CUstream stream))                   \
  X(ncclAllReduce, (const void* source, void* destination, std::size_t count, ncclDataType_t type,          \
                    ncclRedOp_t operation, ncclComm_t communicator, CUstream stream))

namespace kiln::cuda {

/// Immutable once opened, so thread-safe.
struct Nccl {
  const char* (*ncclGetErrorString)(ncclResult_t result) = nullptr;
#define KILN_DECLARE(symbol, parameters) ncclResult_t(*symbol) parameters = nullptr;
  KILN_NCCL_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE
  std::string version;  // "2.28.9"
  std::string path;     // of the library as loaded

  /// Opens $KILN_NCCL_LIBRARY (a path; "none" hides NCCL), else the libnccl.so.2 that the process has loaded or the
  /// loader finds, else one of a toolkit's lib64 or of the Python wheels, once a process. Throws Error(no_nccl).
  static const Nccl& get();
  /// Returns get(), or null where get() throws.
  static const Nccl* find() noexcept;
  /// Opens `library` (empty: as without the variable) on each call. Throws as get() does.
  static Nccl open(const std::string& library);
};

}  // namespace kiln::cuda

// NCCL as a table of functions, opened at first use: only a team that is made of a communicator of NCCL's needs it.
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
typedef enum : unsigned int { ncclInt8 = 0, ncclUint8 = 1 } ncclDataType_t;

// X(symbol, parameters); each returns ncclResult_t.
#define KILN_NCCL_FUNCTIONS(X)                                                                          \
  X(ncclGetVersion, (int* version))                                                                     \
  X(ncclCommUserRank, (ncclComm_t communicator, int* rank))                                             \
  X(ncclCommCount, (ncclComm_t communicator, int* count))                                               \
  X(ncclCommCuDevice, (ncclComm_t communicator, int* device))                                           \
  X(ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t * state))                             \
  X(ncclAllGather, (const void* source, void* destination, std::size_t count_each, ncclDataType_t type, \
                    ncclComm_t communicator, CUstream stream))

namespace kiln::cuda {

/// Immutable once opened, so thread-safe.
struct Nccl {
  const char* (*ncclGetErrorString)(ncclResult_t result) = nullptr;
#define KILN_DECLARE(symbol, parameters) ncclResult_t(*symbol) parameters = nullptr;
  KILN_NCCL_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE
  int version = 0;   // 22809 for 2.28.9
  std::string path;  // of the library as loaded

  /// Opens $KILN_NCCL_LIBRARY (a path; "none" hides NCCL), else the libnccl.so.2 that the process has loaded or the
  /// loader finds, else one of a toolkit's lib64 or of the Python wheels, once a process. Throws Error(no_nccl).
  static const Nccl& get();
  /// Opens `library` (empty: as without the variable) on each call. Throws as get() does.
  static Nccl open(const std::string& library);
};

}  // namespace kiln::cuda

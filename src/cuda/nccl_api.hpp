// NCCL as a table of functions, opened at first use: one GPU needs no NCCL.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/driver_types.hpp"

typedef struct ncclComm* ncclComm_t;
typedef struct ncclUniqueId {
  char internal[128];
} ncclUniqueId;

typedef enum : unsigned int { ncclSuccess = 0 } ncclResult_t;
typedef enum : unsigned int { ncclSum = 0, ncclMax = 2, ncclMin = 3 } ncclRedOp_t;
typedef enum : unsigned int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat32 = 7,
  ncclFloat64 = 8
} ncclDataType_t;

// X(symbol, parameters); each returns ncclResult_t.
#define KILN_NCCL_FUNCTIONS(X)                                                                               \
  X(ncclGetVersion, (int* version))                                                                          \
  X(ncclGetUniqueId, (ncclUniqueId * id))                                                                    \
  X(ncclCommInitRank, (ncclComm_t * communicator, int rank_count, ncclUniqueId id, int rank))                \
  X(ncclCommDestroy, (ncclComm_t communicator))                                                              \
  X(ncclBroadcast, (const void* source, void* destination, std::size_t count, ncclDataType_t type, int root, \
                    ncclComm_t communicator, CUstream stream))                                               \
  X(ncclAllReduce, (const void* source, void* destination, std::size_t count, ncclDataType_t type,           \
                    ncclRedOp_t operation, ncclComm_t communicator, CUstream stream))

namespace kiln::cuda {

struct Nccl {
  const char* (*ncclGetErrorString)(ncclResult_t result) = nullptr;
#define KILN_DECLARE(symbol, parameters) ncclResult_t(*symbol) parameters = nullptr;
  KILN_NCCL_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE
  int version = 0;   // 22809 for 2.28.9
  std::string path;  // of the library as loaded

  /// Opens, once a process, KILN_NCCL_LIBRARY (a path; "none" hides NCCL), or the first libnccl.so.2 of the loader's
  /// path, a toolkit's lib64 and the Python wheels' folders. Throws Error(no_nccl).
  static const Nccl& get();
  /// The same, null instead of an exception.
  static const Nccl* find() noexcept;
  /// What get() does, uncached, with `library` in place of KILN_NCCL_LIBRARY.
  static Nccl open(const std::string& library);
};

}  // namespace kiln::cuda

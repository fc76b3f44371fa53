// Compares Kiln's declarations of NCCL's ABI, put in a namespace first, with those of nccl.h where it exists.
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace ours {
#include "cuda/nccl_api.hpp"
}

#include <doctest/doctest.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#endif

#ifdef NCCL_VERSION_CODE

#define SAME_VALUE(name) static_assert(static_cast<unsigned>(ours::name) == static_cast<unsigned>(::name))
/// Pointers to enumerations and structures are one in the ABI: arguments must be as many and as large, in order.
template <typename Function>
struct Sizes;
template <typename Result, typename... Parameters>
struct Sizes<Result (*)(Parameters...)> {
  using type = std::index_sequence<sizeof(Result), sizeof(Parameters)...>;
};
#define SAME_SIZES(symbol) \
  static_assert(std::is_same_v<Sizes<decltype(ours::kiln::cuda::Nccl::symbol)>::type, Sizes<decltype(&::symbol)>::type>)

SAME_VALUE(ncclSuccess);
SAME_VALUE(ncclUnhandledCudaError);
SAME_VALUE(ncclSystemError);
SAME_VALUE(ncclInternalError);
SAME_VALUE(ncclInvalidArgument);
SAME_VALUE(ncclInvalidUsage);
SAME_VALUE(ncclRemoteError);
SAME_VALUE(ncclInProgress);
SAME_VALUE(ncclInt8);
SAME_VALUE(ncclUint8);
SAME_VALUE(ncclInt32);
SAME_VALUE(ncclInt64);
SAME_VALUE(ncclFloat16);
SAME_VALUE(ncclFloat32);
SAME_VALUE(ncclFloat64);
SAME_VALUE(ncclBfloat16);
SAME_VALUE(ncclSum);
static_assert(sizeof(ours::ncclUniqueId) == sizeof(::ncclUniqueId));
static_assert(sizeof(ours::ncclRedOp_t) == sizeof(::ncclRedOp_t));
static_assert(sizeof(ours::ncclResult_t) == sizeof(::ncclResult_t));
static_assert(sizeof(ours::ncclDataType_t) == sizeof(::ncclDataType_t));
SAME_SIZES(ncclGetErrorString);
SAME_SIZES(ncclGetVersion);
SAME_SIZES(ncclCommUserRank);
SAME_SIZES(ncclCommCount);
SAME_SIZES(ncclCommCuDevice);
SAME_SIZES(ncclCommGetAsyncError);
SAME_SIZES(ncclAllGather);
SAME_SIZES(ncclGetUniqueId);
SAME_SIZES(ncclCommInitRank);
SAME_SIZES(ncclCommDestroy);
SAME_SIZES(ncclCommAbort);
SAME_SIZES(ncclReduceScatter);
SAME_SIZES(ncclAllReduce);

TEST_CASE("what is declared of NCCL is what nccl.h declares") {}  // static assertions

#endif

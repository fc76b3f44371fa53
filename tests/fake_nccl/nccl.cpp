// A libnccl.so that needs no GPU: the functions that Kiln calls, for processes that share a FakeNcclBoard, on the fake driver's memory. Its
// communicators do not block: a collective whose ranks have not all come is in progress, and goes on in ncclCommGetAsyncError.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cuda/driver_api.hpp"
#include "fake_nccl/control.hpp"

// Declared by the very list that Kiln calls them through: a definition that differs does not compile.
#pragma GCC visibility push(default)
extern "C" {
#define FAKE_NCCL_DECLARE(symbol, parameters) ncclResult_t symbol parameters;
KILN_NCCL_FUNCTIONS(FAKE_NCCL_DECLARE)
#undef FAKE_NCCL_DECLARE
const char* ncclGetErrorString(ncclResult_t result);
}
#pragma GCC visibility pop

struct ncclComm {
  FakeNcclBoard* board = nullptr;
  int rank = 0, world = 0, device = 0;
  ncclResult_t failure = ncclSuccess;
  int begun = 0;                // collectives
  void* destination = nullptr;  // of the one in progress; null: none is
  std::size_t count_each = 0;
};

namespace {

/// A function of the driver that the process uses.
template <typename Function>
Function driver_function(const char* name) {
  static void* driver = dlopen(std::getenv("KILN_CUDA_LIBRARY"), RTLD_NOW);
  return reinterpret_cast<Function>(dlsym(driver, name));
}

bool all_ranks_have(const ncclComm& communicator, std::atomic<int> FakeNcclBoard::Place::*count, int least) {
  const FakeNcclBoard::Place* places = communicator.board->places;
  return std::all_of(places, places + communicator.world, [&](const auto& each) { return (each.*count) >= least; });
}

ncclResult_t go_on(ncclComm& communicator) {
  static const auto to_device = driver_function<decltype(kiln::cuda::Driver::cuMemcpyHtoD_v2)>("cuMemcpyHtoD_v2");
  if (communicator.failure != ncclSuccess || communicator.destination == nullptr) return communicator.failure;
  if (!all_ranks_have(communicator, &FakeNcclBoard::Place::given, communicator.begun)) return ncclInProgress;
  auto destination = reinterpret_cast<CUdeviceptr>(communicator.destination);
  for (int rank = 0; rank < communicator.world; ++rank, destination += communicator.count_each)
    if (to_device(destination, communicator.board->places[rank].bytes, communicator.count_each) != CUDA_SUCCESS)
      communicator.failure = ncclUnhandledCudaError;
  communicator.board->places[communicator.rank].taken = communicator.begun;
  communicator.destination = nullptr;
  return communicator.failure;
}

}  // namespace

ncclComm_t fake_nccl_communicator(FakeNcclBoard* board, int rank, int world, int device) {
  auto* made = new ncclComm;
  made->board = board;
  made->rank = rank;
  made->world = world;
  made->device = device;
  return made;
}

void fake_nccl_fail(ncclComm_t communicator, ncclResult_t result) { communicator->failure = result; }

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "unhandled system error" : result == ncclSuccess ? "no error" : "another error";
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t communicator, int* rank) {
  *rank = communicator->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t communicator, int* count) {
  *count = communicator->world;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t communicator, int* device) {
  *device = communicator->device;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  *state = go_on(*communicator);
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* source, void* destination, std::size_t count_each, ncclDataType_t type,
                           ncclComm_t communicator, CUstream stream) {
  FakeNcclBoard::Place& own = communicator->board->places[communicator->rank];
  if (source == nullptr || destination == nullptr || stream == nullptr || type > ncclUint8 ||
      count_each > sizeof own.bytes || communicator->destination != nullptr ||
      !all_ranks_have(*communicator, &FakeNcclBoard::Place::taken, communicator->begun))
    return ncclInvalidArgument;
  static const auto synchronize =
      driver_function<decltype(kiln::cuda::Driver::cuStreamSynchronize)>("cuStreamSynchronize");
  static const auto to_host = driver_function<decltype(kiln::cuda::Driver::cuMemcpyDtoH_v2)>("cuMemcpyDtoH_v2");
  if (synchronize(stream) != CUDA_SUCCESS ||
      to_host(own.bytes, reinterpret_cast<CUdeviceptr>(source), count_each) != CUDA_SUCCESS)
    return ncclUnhandledCudaError;
  communicator->destination = destination;
  communicator->count_each = count_each;
  own.given = ++communicator->begun;
  return go_on(*communicator);
}

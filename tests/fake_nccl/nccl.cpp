// A libnccl.so that needs no GPU: the functions that Kiln calls, for processes that share memory, on the fake driver's memory.
// A communicator of fake_nccl_communicator() does not block: a collective whose ranks have not all come is in progress, and goes on in
// ncclCommGetAsyncError. One of ncclCommInitRank() launches the fake driver's kernel "vendor_collective<all_gather>" or the like, which
// waits for the other ranks. Both ncclCommInitRank() and ncclCommDestroy() wait for all ranks, without end. FAKE_NCCL_FAILS names a rank
// whose ncclCommInitRank fails, FAKE_NCCL_DIES one whose process ends there, and FAKE_NCCL_HANGS one that never comes to the others.
// FAKE_NCCL_DIES_LEAVING names one whose process ends in ncclCommDestroy.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "cuda/driver_api.hpp"
#include "driver/control.hpp"
#include "fake_nccl/control.hpp"
#include "twins/vendor_collective.hpp"

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
  fake_cuda::CollectiveBoard* exchange = nullptr;  // null: of fake_nccl_communicator()
  std::atomic<bool> aborted{false};
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

bool is_named(const char* variable, int rank) {
  const char* named = std::getenv(variable);
  return named != nullptr && std::atoi(named) == rank;
}

void die_after_others_wait() {
  usleep(200'000);
  kill(getpid(), SIGKILL);
}

/// Returns once all ranks have marked the board so.
void await_all(fake_cuda::CollectiveBoard& board, std::atomic<int> fake_cuda::CollectiveBoard::Place::*mark, int rank,
               int world) {
  const auto* places = board.places;
  board.places[rank].*mark = 1;
  while (!std::all_of(places, places + world, [&](const auto& each) { return (each.*mark) != 0; })) usleep(20);
}

/// The ranks' shared memory of this name. The last rank to join removes the name.
fake_cuda::CollectiveBoard* join(const char* name, int rank, int world) {
  const int file = shm_open(name, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(fake_cuda::CollectiveBoard)) != 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(fake_cuda::CollectiveBoard), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  auto* board = static_cast<fake_cuda::CollectiveBoard*>(memory);
  await_all(*board, &fake_cuda::CollectiveBoard::Place::joined, rank, world);
  shm_unlink(name);
  return board;
}

ncclResult_t launch(fake_cuda::VendorCollective::Kind kind, const char* name, const void* source, void* destination,
                    std::size_t count, ncclDataType_t type, ncclComm_t communicator, CUstream stream) {
  if (source == nullptr || destination == nullptr || communicator->aborted) return ncclInvalidArgument;
  fake_cuda::VendorCollective collective;
  collective.board = communicator->exchange;
  collective.aborted = &communicator->aborted;
  collective.source = reinterpret_cast<CUdeviceptr>(source);
  collective.destination = reinterpret_cast<CUdeviceptr>(destination);
  collective.count = static_cast<std::int64_t>(count);
  collective.rank = communicator->rank;
  collective.world = communicator->world;
  collective.type = type;
  collective.kind = kind;
  static const auto enqueue = driver_function<FakeCudaLaunch>("fake_cuda_launch");
  const std::string kernel = std::string("vendor_collective<") + name + ">";
  return enqueue(kernel.c_str(), stream, &collective, sizeof collective) == 0 ? ncclSuccess : ncclUnhandledCudaError;
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

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "/fake_nccl_%d_%08x", getpid(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int world, ncclUniqueId id, int rank) {
  if (is_named("FAKE_NCCL_DIES", rank)) die_after_others_wait();
  while (is_named("FAKE_NCCL_HANGS", rank)) pause();
  fake_cuda::CollectiveBoard* exchange = join(id.internal, rank, world);
  if (exchange == nullptr || is_named("FAKE_NCCL_FAILS", rank)) return ncclSystemError;
  auto* made = new ncclComm;
  made->rank = rank;
  made->world = world;
  made->exchange = exchange;
  *communicator = made;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (communicator->exchange == nullptr) return ncclInvalidArgument;  // a test's own
  if (is_named("FAKE_NCCL_DIES_LEAVING", communicator->rank)) die_after_others_wait();
  await_all(*communicator->exchange, &fake_cuda::CollectiveBoard::Place::left, communicator->rank, communicator->world);
  munmap(communicator->exchange, sizeof(fake_cuda::CollectiveBoard));
  delete communicator;
  return ncclSuccess;
}

/// A launch that is under way refers to the communicator, which therefore stays.
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<ncclComm_t>;  // LeakSanitizer finds them here
  const std::lock_guard lock(mutex);
  kept->push_back(communicator);
  communicator->aborted = true;
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
  if (communicator->exchange != nullptr) {
    if (type > ncclUint8) return ncclInvalidArgument;
    return launch(fake_cuda::VendorCollective::Kind::all_gather, "all_gather", source, destination, count_each, type,
                  communicator, stream);
  }
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

ncclResult_t ncclReduceScatter(const void* source, void* destination, std::size_t count_each, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, CUstream stream) {
  if (operation != ncclSum || communicator->exchange == nullptr) return ncclInvalidArgument;
  return launch(fake_cuda::VendorCollective::Kind::reduce_scatter, "reduce_scatter", source, destination, count_each,
                type, communicator, stream);
}

ncclResult_t ncclAllReduce(const void* source, void* destination, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, CUstream stream) {
  if (operation != ncclSum || communicator->exchange == nullptr) return ncclInvalidArgument;
  return launch(fake_cuda::VendorCollective::Kind::all_reduce, "all_reduce", source, destination, count, type,
                communicator, stream);
}

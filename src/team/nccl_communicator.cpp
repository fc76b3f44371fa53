#include "team/nccl_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "kiln/error.hpp"
#include "team/link.hpp"

namespace kiln::team {
namespace {

using namespace std::chrono_literals;

// An enqueue takes microseconds. One that takes longer waits inside NCCL, and returns once the communicator is aborted.
constexpr auto longest_enqueue = 200ms;

void must_succeed(const cuda::Nccl& nccl, ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw Error(ErrorKind::no_nccl,
                fmt::format("NCCL {} cannot serve the team: {} gave '{}'; run with NCCL_DEBUG=WARN",
                            cuda::nccl_version_text(nccl.version), what, nccl.ncclGetErrorString(result)));
}

/// A call of ncclCommInitRank that is under way on a thread of its own.
struct Joining {
  std::mutex mutex;
  bool has_ended = false, is_abandoned = false;
  ncclComm_t made = nullptr;
  ncclResult_t result = ncclSuccess;
};

/// Begins to join. ncclCommInitRank waits for all ranks without end, and tells its communicator's handle only then, so that nobody can abort it.
/// A communicator that does not block can be aborted. But NCCL starts a thread for each of its enqueues (group.cc, NCCL 2.28).
std::shared_ptr<Joining> begin_to_join(const cuda::Nccl& nccl, const ncclUniqueId& id, int rank, int world,
                                       CUcontext context) {
  auto joining = std::make_shared<Joining>();
  std::thread([&nccl, id, rank, world, context, joining] {
    const cuda::RelaxedCapture relaxed;
    ncclComm_t made = nullptr;
    ncclResult_t result = ncclUnhandledCudaError;
    if (cuda::Driver::get().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS)
      result = nccl.ncclCommInitRank(&made, world, id, rank);
    const std::lock_guard lock(joining->mutex);
    joining->has_ended = true;
    joining->result = result;
    joining->made = made;
    if (joining->is_abandoned && result == ncclSuccess) nccl.ncclCommAbort(made);
  }).detach();
  return joining;
}

}  // namespace

std::string NcclCommunicator::unique_id() {
  const cuda::Nccl& nccl = cuda::Nccl::get();
  ncclUniqueId id{};
  must_succeed(nccl, nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {id.internal, sizeof id.internal};
}

NcclCommunicator::NcclCommunicator(const std::string& id, int rank, int world, const cuda::Context& context,
                                   const Waiting& waiting)
    : nccl_(cuda::Nccl::get()) {
  ncclUniqueId given{};
  std::memcpy(given.internal, id.data(), std::min(id.size(), sizeof given.internal));
  const std::shared_ptr<Joining> joining = begin_to_join(nccl_, given, rank, world, context.handle());
  for (const auto end = end_after(waiting.timeout);; std::this_thread::sleep_for(1ms)) {
    const bool is_in_vain = waiting.is_in_vain(), is_late = Clock::now() >= end;
    const std::lock_guard lock(joining->mutex);
    if (joining->has_ended) break;
    if (!is_in_vain && !is_late) continue;
    joining->is_abandoned = true;  // its thread stays in NCCL until the others come, or the process ends
    throw Error(ErrorKind::no_nccl,
                fmt::format("NCCL {} cannot serve the team: {}", cuda::nccl_version_text(nccl_.version),
                            is_in_vain ? "a rank has ended while the others waited for it in ncclCommInitRank"
                                       : fmt::format("not all ranks came to ncclCommInitRank within {} ms",
                                                     waiting.timeout.count())));
  }
  must_succeed(nccl_, joining->result, "ncclCommInitRank");
  handle_ = joining->made;
}

NcclCommunicator::~NcclCommunicator() { abort(); }

void NcclCommunicator::close() noexcept {
  const std::lock_guard lock(mutex_);
  if (ncclComm_t ended = handle_.exchange(nullptr)) nccl_.ncclCommDestroy(ended);
}

void NcclCommunicator::abort() noexcept {
  // Not a timed_mutex, whose waits ThreadSanitizer of LLVM 14 does not see.
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (auto waited = 0ms; !lock && waited < longest_enqueue; waited += 1ms) {
    std::this_thread::sleep_for(1ms);
    static_cast<void>(lock.try_lock());
  }
  if (ncclComm_t ended = handle_.exchange(nullptr)) nccl_.ncclCommAbort(ended);
}

}  // namespace kiln::team

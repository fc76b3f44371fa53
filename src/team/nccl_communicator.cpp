#include "team/nccl_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "kiln/error.hpp"

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

}  // namespace

std::string NcclCommunicator::unique_id() {
  const cuda::Nccl& nccl = cuda::Nccl::get();
  ncclUniqueId id{};
  must_succeed(nccl, nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {id.internal, sizeof id.internal};
}

NcclCommunicator::NcclCommunicator(const std::string& id, int rank, int world) : nccl_(cuda::Nccl::get()) {
  ncclUniqueId given{};
  std::memcpy(given.internal, id.data(), std::min(id.size(), sizeof given.internal));
  ncclComm_t made = nullptr;
  must_succeed(nccl_, nccl_.ncclCommInitRank(&made, world, given, rank), "ncclCommInitRank");
  handle_ = made;
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

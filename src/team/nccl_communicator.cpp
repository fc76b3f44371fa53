#include "team/nccl_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "kiln/error.hpp"
#include "manifest/no_signals.hpp"
#include "manifest/shortage.hpp"
#include "team/link.hpp"

namespace kiln::team {
namespace {

using namespace std::chrono_literals;

// An enqueue takes microseconds. One that takes longer waits inside NCCL, and returns once the communicator is aborted.
constexpr auto longest_enqueue = 200ms;

void must_succeed(const cuda::Nccl& nccl, ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw Error(ErrorKind::no_nccl, fmt::format("NCCL {} cannot serve the team: {} gave '{}'; run with NCCL_DEBUG=WARN",
                                                nccl.version, what, nccl.ncclGetErrorString(result)));
}

enum class Waited { ended, in_vain, late };

/// A call of NCCL that waits for the other ranks without end, on a thread of its own, which keeps the device's context
/// until NCCL returns. The call takes the communicator's handle, and may give one.
class Call {
 public:
  using Work = std::function<ncclResult_t(ncclComm_t& communicator)>;
  /// `abandoned` gets the handle of a call that ends when nobody waits for it any more.
  Call(const cuda::Context& context, ncclComm_t communicator, Work work,
       std::function<void(ncclComm_t)> abandoned = {});

  /// Abandons the call unless it has ended.
  [[nodiscard]] Waited wait(const NcclCommunicator::Waiting& waiting) const;
  /// Of a call that has ended.
  [[nodiscard]] ncclResult_t result() const noexcept { return state_->result; }
  [[nodiscard]] ncclComm_t communicator() const noexcept { return state_->communicator; }

 private:
  struct State {
    std::mutex mutex;
    bool has_ended = false, is_abandoned = false;
    ncclComm_t communicator = nullptr;
    ncclResult_t result = ncclUnhandledCudaError;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

Call::Call(const cuda::Context& context, ncclComm_t communicator, Work work,
           std::function<void(ncclComm_t)> abandoned) {
  state_->communicator = communicator;
  auto retained = std::make_unique<cuda::Context>(context.info().ordinal);
  auto run = [state = state_, context = std::move(retained), work = std::move(work),
              abandoned = std::move(abandoned)]() mutable {
    const cuda::RelaxedCapture relaxed;
    const cuda::Driver& driver = cuda::Driver::get();
    const bool is_current = driver.cuCtxPushCurrent_v2(context->handle()) == CUDA_SUCCESS;
    ncclComm_t handle = state->communicator;
    const ncclResult_t result = is_current ? work(handle) : ncclUnhandledCudaError;
    const std::lock_guard lock(state->mutex);
    if (state->is_abandoned && abandoned && result == ncclSuccess) abandoned(handle);
    CUcontext popped = nullptr;
    if (is_current) driver.cuCtxPopCurrent_v2(&popped);
    context.reset();  // before the caller goes on, and may release its own
    state->has_ended = true;
    state->result = result;
    state->communicator = handle;
  };
  try {
    const manifest::NoSignals no_signals;
    std::thread(std::move(run)).detach();
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::no_nccl,
                fmt::format("NCCL cannot serve the team: its call needs a thread, and there is none: {}",
                            manifest::refusal_text(error.code().value())));
  }
}

Waited Call::wait(const NcclCommunicator::Waiting& waiting) const {
  for (const auto end = end_after(waiting.timeout);; std::this_thread::sleep_for(1ms)) {
    const bool is_in_vain = waiting.is_in_vain(), is_late = Clock::now() >= end;
    const std::lock_guard lock(state_->mutex);
    if (state_->has_ended) return Waited::ended;
    if (!is_in_vain && !is_late) continue;
    state_->is_abandoned = true;
    return is_in_vain ? Waited::in_vain : Waited::late;
  }
}

}  // namespace

std::string NcclCommunicator::unique_id() {
  const cuda::Nccl& nccl = cuda::Nccl::get();
  ncclUniqueId id{};
  must_succeed(nccl, nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {id.internal, sizeof id.internal};
}

/// ncclCommInitRank tells its communicator's handle only once all ranks have come, so that nobody can abort it. A
/// communicator that does not block can be aborted. But NCCL starts a thread for each of its enqueues (group.cc, NCCL
/// 2.28).
NcclCommunicator::NcclCommunicator(const std::string& id, int rank, int world, const cuda::Context& context,
                                   const Waiting& waiting)
    : nccl_(cuda::Nccl::get()), context_(context) {
  ncclUniqueId given{};
  std::memcpy(given.internal, id.data(), std::min(id.size(), sizeof given.internal));
  const Call joining(
      context, nullptr,
      [&nccl = nccl_, given, rank, world](ncclComm_t& made) {
        return nccl.ncclCommInitRank(&made, world, given, rank);
      },
      [&nccl = nccl_](ncclComm_t made) { nccl.ncclCommAbort(made); });
  if (const Waited waited = joining.wait(waiting); waited != Waited::ended)
    throw Error(
        ErrorKind::no_nccl,
        fmt::format("NCCL {} cannot serve the team: {}", nccl_.version,
                    waited == Waited::in_vain
                        ? "a rank has ended while the others waited for it in ncclCommInitRank"
                        : fmt::format("not all ranks came to ncclCommInitRank within {} ms", waiting.timeout.count())));
  must_succeed(nccl_, joining.result(), "ncclCommInitRank");
  handle_ = joining.communicator();
}

NcclCommunicator::~NcclCommunicator() { abort(); }

void NcclCommunicator::close(const Waiting& waiting) noexcept {
  const std::lock_guard lock(mutex_);
  ncclComm_t ended = handle_.exchange(nullptr);
  if (ended == nullptr) return;
  try {
    const Call leaving(context_, ended, [&nccl = nccl_](ncclComm_t& left) { return nccl.ncclCommDestroy(left); });
    static_cast<void>(leaving.wait(waiting));
  } catch (const std::exception&) {  // there is no thread to be had
    nccl_.ncclCommAbort(ended);
  }
}

ncclResult_t NcclCommunicator::error() const noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);  // else an enqueue is under way, after which it is asked again
  ncclComm_t handle = lock ? handle_.load() : nullptr;
  ncclResult_t state = ncclSuccess;
  if (handle == nullptr || nccl_.ncclCommGetAsyncError(handle, &state) != ncclSuccess) return ncclSuccess;
  return state == ncclInProgress ? ncclSuccess : state;
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

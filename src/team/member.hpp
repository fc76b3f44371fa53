// This process as a member of its team: where its kernels find the other ranks, and what they reported.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device.hpp"
#include "team/binding.hpp"
#include "team/descriptor.hpp"
#include "team/nccl_communicator.hpp"
#include "team/protocol.hpp"
#include "team/symmetric_memory.hpp"

namespace kiln::team {

/// Refers to what kiln::Team holds beside it. Collectives are for one thread at a time: whoever calls one holds
/// collectives().
class Member {
 public:
  /// `context` is current. All three outlive this. `timeout`: of a launch. Throws Error(out_of_memory) or
  /// Error(driver_failed). `memory`: null where the link is a network.
  Member(Rendezvous& rendezvous, const SymmetricMemory* memory, const cuda::Context& context,
         std::chrono::milliseconds timeout, manifest::TeamLink link);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member();

  [[nodiscard]] int rank() const noexcept { return rendezvous_.membership().rank; }
  [[nodiscard]] int world() const noexcept { return rendezvous_.membership().world; }
  [[nodiscard]] const std::string& name() const noexcept { return rendezvous_.membership().name; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return memory_ == nullptr ? 0 : memory_->bytes(); }
  [[nodiscard]] manifest::TeamLink link() const noexcept { return link_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  [[nodiscard]] Rendezvous& rendezvous() noexcept { return rendezvous_; }

  /// Held during a plan's agreement, reset() and close(), by engines and the team alike.
  [[nodiscard]] std::mutex& collectives() noexcept { return collectives_; }

  /// What executables of a plan are bound to. `tag` differs between plans and is equal on all ranks; its lowest 16 bits
  /// count. Throws Error(bad_input) after close().
  [[nodiscard]] TeamBinding binding(std::uint32_t tag) const;
  /// The same for a trial. Its launches wait for `trial_timeout`: ranks load and compare between them, for longer than
  /// a launch may.
  [[nodiscard]] TeamBinding trial_binding(std::uint32_t tag) const;
  static constexpr std::chrono::seconds trial_timeout{10};

  /// Whether a launch reported a fault since the last reset(), or the team is closed. A load from pinned memory.
  [[nodiscard]] bool has_fault() const noexcept;
  /// The first fault since the last reset(). Nothing where there is none.
  [[nodiscard]] std::optional<Report> fault() const noexcept;
  /// Makes every wait of this rank's kernels end, now and until the next reset().
  void abort() noexcept;
  /// Collective: forgets the fault, and clears epochs and flags on all ranks. Precondition: the caller has synchronised
  /// the streams that launched ops of the team. Waits for a launch's time-out longer than other collectives, since a
  /// late rank may be in a launch. Throws as Rendezvous does, Error(driver_failed), Error(team_failed) where NCCL's
  /// communicator was aborted, and Error(bad_input) after close().
  void reset();

  /// Collective: makes the team's NCCL communicator at the first call. Returns whether there is one, on all ranks
  /// alike: where NCCL fails on one rank or a rank does not come to it within the team's time-out, none has it, and
  /// why_no_nccl() tells why. Precondition: all ranks have NCCL, of one version. Throws as Rendezvous does, where a
  /// rank ended in NCCL too.
  bool open_nccl();
  /// Null before open_nccl(), and where that failed.
  [[nodiscard]] const NcclCommunicator* nccl() const noexcept { return nccl_.get(); }
  [[nodiscard]] const std::string& why_no_nccl() const noexcept { return why_no_nccl_; }
  /// Collective where there is a communicator of NCCL: destroys it where all ranks come to do so, and else aborts it.
  /// Precondition: the caller has synchronised the streams that launched ops of the team, and launches none any more.
  void close() noexcept;

 private:
  [[nodiscard]] std::jthread begin_watch();
  void watch(const std::stop_token& stop);
  void require_open() const;
  void clear_flags() const;
  void end_nccl(Report::State why) noexcept;
  void end_failed_nccl() noexcept;
  /// Collective: whether all ranks have come.
  [[nodiscard]] bool have_all_come() noexcept;
  /// How long this rank waits in NCCL for the others.
  [[nodiscard]] NcclCommunicator::Waiting waiting() const;

  Rendezvous& rendezvous_;
  const SymmetricMemory* memory_;
  const cuda::Context& context_;
  std::chrono::milliseconds timeout_;
  manifest::TeamLink link_;
  std::chrono::milliseconds nccl_timeout_;  // the team's own, which Patience lengthens for the rendezvous
  std::mutex collectives_;
  std::atomic<bool> is_closed_ = false;
  Report* report_ = nullptr;                 // pinned; the device reaches it by the same address
  Descriptor wake_;                          // ends the poll of watcher_
  std::vector<Rendezvous::Watched> others_;  // the other ranks
  bool was_nccl_asked_ = false;
  std::string why_no_nccl_;
  std::mutex nccl_mutex_;  // guards these two, of which watcher_ needs both
  std::unique_ptr<NcclCommunicator> nccl_;
  std::atomic<bool> has_rank_ended_ = false;
  std::jthread watcher_;  // last: it uses the others
};

/// "rank 0 waited for rank 1 (flag 3, epoch 17): nothing came within 10000 ms"
std::string text_of(const Report& report, int rank, std::chrono::milliseconds timeout);

}  // namespace kiln::team

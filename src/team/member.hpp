// This process as a member of its team: where its kernels find the other ranks, and what they reported.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device.hpp"
#include "team/binding.hpp"
#include "team/descriptor.hpp"
#include "team/protocol.hpp"
#include "team/symmetric_memory.hpp"

namespace kiln::team {

/// Refers to what kiln::Team holds beside it. Collectives are for one thread at a time.
class Member {
 public:
  /// `context` is current. All three outlive this. `timeout`: of a launch. Throws Error(out_of_memory) or Error(driver_failed).
  Member(Rendezvous& rendezvous, const SymmetricMemory& memory, const cuda::Context& context,
         std::chrono::milliseconds timeout);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member();

  [[nodiscard]] int rank() const noexcept { return rendezvous_.membership().rank; }
  [[nodiscard]] int world() const noexcept { return rendezvous_.membership().world; }
  [[nodiscard]] const std::string& name() const noexcept { return rendezvous_.membership().name; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  [[nodiscard]] Rendezvous& rendezvous() noexcept { return rendezvous_; }

  /// What executables of a plan are bound to. `tag` differs between plans and is equal on all ranks; its lowest 16 bits count.
  [[nodiscard]] TeamBinding binding(std::uint32_t tag) const noexcept;

  /// Whether a launch reported a fault since the last reset(). A load from pinned memory.
  [[nodiscard]] bool has_fault() const noexcept;
  /// The first fault since the last reset(). Nothing where there is none.
  [[nodiscard]] std::optional<Report> fault() const noexcept;
  /// Makes every wait of this rank's kernels end, now and until the next reset().
  void abort() noexcept;
  /// Collective: forgets the fault, and clears epochs and flags on all ranks. Precondition: the caller has synchronised the streams that
  /// launched ops of the team. Throws as Rendezvous does, and Error(driver_failed).
  void reset();

 private:
  void watch(const std::stop_token& stop);

  Rendezvous& rendezvous_;
  const SymmetricMemory& memory_;
  const cuda::Context& context_;
  std::chrono::milliseconds timeout_;
  Report* report_ = nullptr;           // pinned; the device reaches it by the same address
  Descriptor wake_;                    // ends the poll of watcher_
  std::vector<Descriptor> processes_;  // readable once a rank's has ended
  std::jthread watcher_;               // last: it uses the others
};

/// "rank 0 waited for rank 1 (flag 3, epoch 17): nothing came within 10000 ms"
std::string text_of(const Report& report, int rank, std::chrono::milliseconds timeout);

}  // namespace kiln::team

#include "team/member.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kiln/error.hpp"

namespace kiln::team {
namespace {

constexpr unsigned portable_and_mapped = 3;  // CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, macros of cuda.h

Report* pinned_report() {
  void* memory = nullptr;
  cuda::check(cuda::Driver::get().cuMemHostAlloc(&memory, sizeof(Report), portable_and_mapped),
              "allocating host memory for the report of a team");
  std::memset(memory, 0, sizeof(Report));
  return static_cast<Report*>(memory);
}

}  // namespace

Member::Member(Rendezvous& rendezvous, const SymmetricMemory& memory, const cuda::Context& context,
               std::chrono::milliseconds timeout)
    : rendezvous_(rendezvous),
      memory_(memory),
      context_(context),
      timeout_(timeout),
      report_(pinned_report()),
      wake_(eventfd(0, EFD_CLOEXEC)),
      processes_(rendezvous_.processes()),
      watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

Member::~Member() {
  watcher_.request_stop();
  const std::uint64_t one = 1;
  static_cast<void>(write(wake_.get(), &one, sizeof one));
  watcher_.join();
  const cuda::Context::Guest guest(context_);
  const cuda::RelaxedCapture relaxed;
  cuda::Driver::find()->cuMemFreeHost(report_);
}

/// Ends every wait once a rank has ended: its data will not come.
void Member::watch(const std::stop_token& stop) {
  std::vector<pollfd> ends{{wake_.get(), POLLIN, 0}};
  for (const Descriptor& each : processes_) ends.push_back({each.get(), POLLIN, 0});
  while (!stop.stop_requested()) {
    if (poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) return;
    bool has_ended = false;
    for (std::size_t i = 1; i < ends.size(); ++i) has_ended = has_ended || ends[i].revents != 0;
    if (!has_ended) continue;
    abort();
    return;
  }
}

TeamBinding Member::binding(std::uint32_t tag) const noexcept {
  TeamBinding binding;
  const auto addresses = memory_.addresses();
  std::copy_n(addresses.begin(), std::min<std::size_t>(addresses.size(), most_ranks), binding.memory.begin());
  binding.report = reinterpret_cast<std::uint64_t>(report_);
  binding.half_bytes = half_bytes(bytes());
  binding.timeout_ns =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout_).count());
  binding.rank = rank();
  binding.world = world();
  binding.tag = std::max(tag & 0xffffU, 1U);  // 0 is no plan's
  return binding;
}

bool Member::has_fault() const noexcept {
  return std::atomic_ref(report_->state).load(std::memory_order_acquire) != Report::none;
}

std::optional<Report> Member::fault() const noexcept {
  if (!has_fault()) return std::nullopt;
  return *report_;
}

void Member::abort() noexcept { std::atomic_ref(report_->abort).store(1, std::memory_order_release); }

void Member::reset() {
  rendezvous_.barrier();  // no kernel of any rank writes from here on
  const cuda::Stream stream;
  const CUdeviceptr own = memory_.addresses()[static_cast<std::size_t>(rank())];
  cuda::check(cuda::Driver::get().cuMemsetD8Async(own, 0, control_bytes, stream.handle()), "clearing a team's flags");
  stream.synchronize();
  std::memset(report_, 0, sizeof *report_);
  rendezvous_.barrier();  // all are clear before the first kernel writes
}

std::string text_of(const Report& report, int rank, std::chrono::milliseconds timeout) {
  const std::string whom = fmt::format("rank {} waited for rank {} (flag {}, epoch {}, plan {:#06x})", rank,
                                       report.rank, report.flag, report.expected_epoch, report.expected_tag);
  switch (report.state) {
    case Report::timed_out:
      return fmt::format("{}: nothing came within {} ms; the last that came was of epoch {}", whom, timeout.count(),
                         report.seen_epoch);
    case Report::other_plan:
      return fmt::format(
          "{}: that rank launched another plan ({:#06x}); all ranks launch the same ops on problems of the same buckets, in the same order",
          whom, report.seen_tag);
    case Report::aborted: return fmt::format("{}: a rank has ended", whom);
    case Report::two_launches:
      return fmt::format(
          "rank {} launched two ops of one team at once; a team's launches go to one stream, or wait for each other",
          rank);
    default: return "nothing";
  }
}

}  // namespace kiln::team

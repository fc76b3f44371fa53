#include "team/member.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "kiln/error.hpp"
#include "manifest/no_signals.hpp"
#include "manifest/shortage.hpp"
#include "team/exchange.hpp"

namespace kiln::team {
namespace {

constexpr int between_looks_at_nccl_ms = 500;
constexpr unsigned portable_and_mapped = 3;  // CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, macros of cuda.h

Report* pinned_report() {
  void* memory = nullptr;
  cuda::check(cuda::Driver::get().cuMemHostAlloc(&memory, sizeof(Report), portable_and_mapped),
              "allocating host memory for the report of a team");
  std::memset(memory, 0, sizeof(Report));
  return static_cast<Report*>(memory);
}

Descriptor new_event() {
  Descriptor made(eventfd(0, EFD_CLOEXEC));
  if (!made)
    throw Error(ErrorKind::io, fmt::format("a team's thread needs an eventfd: {}", manifest::refusal_text(errno)));
  return made;
}

std::string why_peer_failed(const Report& report) {
  switch (report.peer_state) {
    case Report::timed_out: return fmt::format("it waited for rank {} longer than its time-out", report.peer_rank);
    case Report::other_plan: return fmt::format("rank {} launched another plan than it", report.peer_rank);
    case Report::aborted: return "it saw that a rank had ended";
    case Report::two_launches: return "it launched two ops of the team at once";
    default: return "its own error tells why";
  }
}

}  // namespace

Member::Member(Rendezvous& rendezvous, const SymmetricMemory* memory, const cuda::Context& context,
               std::chrono::milliseconds timeout, manifest::TeamLink link)
    : rendezvous_(rendezvous),
      memory_(memory),
      context_(context),
      timeout_(timeout),
      link_(link),
      nccl_timeout_(rendezvous.timeout()),
      report_(pinned_report()),
      wake_(new_event()),
      others_(rendezvous_.watched()),
      watcher_(begin_watch()) {}

std::jthread Member::begin_watch() {
  try {
    const manifest::NoSignals no_signals;
    return std::jthread([this](const std::stop_token& stop) { watch(stop); });
  } catch (const std::system_error& error) {
    cuda::Driver::find()->cuMemFreeHost(report_);
    throw Error(ErrorKind::io, fmt::format("a team needs a thread, which learns of a rank's end, and there is none: {}",
                                           manifest::refusal_text(error.code().value())));
  }
}

Member::~Member() {
  if (cuda::is_forked()) {  // the thread is the parent's, and so is what it uses
    watcher_.detach();
    static_cast<void>(nccl_.release());
    return;
  }
  watcher_.request_stop();
  const std::uint64_t one = 1;
  static_cast<void>(write(wake_.get(), &one, sizeof one));
  watcher_.join();
  const cuda::Context::Guest guest(context_);
  const cuda::RelaxedCapture relaxed;
  nccl_.reset();
  cuda::Driver::find()->cuMemFreeHost(report_);
}

/// Ends every wait once a rank has ended: its data will not come. Over a network also once NCCL has failed.
void Member::watch(const std::stop_token& stop) {
  std::vector<pollfd> ends{{wake_.get(), POLLIN, 0}};
  for (const Rendezvous::Watched& each : others_) ends.push_back({each.descriptor.get(), each.events, 0});
  while (!stop.stop_requested()) {
    const int ready =
        poll(ends.data(), ends.size(), link_ == manifest::TeamLink::network ? between_looks_at_nccl_ms : -1);
    if (ready < 0 && errno != EINTR) return;
    if (ready == 0) {
      end_failed_nccl();
      continue;
    }
    bool has_ended = false;
    for (std::size_t i = 1; i < ends.size(); ++i) has_ended = has_ended || ends[i].revents != 0;
    if (!has_ended) continue;
    has_rank_ended_ = true;
    abort();
    end_nccl(Report::nccl_aborted);
    return;
  }
}

void Member::end_failed_nccl() noexcept {
  const bool has_failed = [&] {
    const std::lock_guard lock(nccl_mutex_);
    return nccl_ && nccl_->error() != ncclSuccess;
  }();
  if (has_failed) end_nccl(Report::nccl_failed);
}

/// NCCL's kernels read no Report: without this they would wait for the rank for ever. The host reports in their place.
void Member::end_nccl(Report::State why) noexcept {
  const std::lock_guard lock(nccl_mutex_);
  if (!nccl_) return;
  std::uint32_t sound = Report::none;
  std::atomic_ref(report_->state).compare_exchange_strong(sound, why, std::memory_order_release);
  nccl_->abort();
}

bool Member::open_nccl() try {
  if (std::exchange(was_nccl_asked_, true)) return nccl_ != nullptr;
  const std::vector<std::string> ids = gather_on_all_ranks(rendezvous_, "asking NCCL for an id", [&] {
    return rank() == 0 ? NcclCommunicator::unique_id() : std::string();
  });
  on_all_ranks(rendezvous_, "joining NCCL's communicator", [&] {
    auto made = std::make_unique<NcclCommunicator>(ids.front(), rank(), world(), context_, waiting());
    const std::lock_guard lock(nccl_mutex_);
    nccl_ = std::move(made);
    if (has_rank_ended_) nccl_->abort();
  });
  return true;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::no_nccl) throw;
  why_no_nccl_ = error.what();
  const std::lock_guard lock(nccl_mutex_);
  nccl_.reset();
  return false;
}

/// ncclCommDestroy waits for all ranks, and for one that has ended without end.
void Member::close() noexcept {
  is_closed_ = true;
  if (nccl_ == nullptr) return;
  const bool may_destroy = have_all_come();
  const std::lock_guard lock(nccl_mutex_);
  if (may_destroy && !has_rank_ended_)
    nccl_->close(waiting());
  else
    nccl_->abort();
}

bool Member::have_all_come() noexcept {
  try {
    rendezvous_.barrier();
    return true;
  } catch (const std::exception&) {  // which the team's next collective tells of
    return false;
  }
}

NcclCommunicator::Waiting Member::waiting() const {
  return {nccl_timeout_, [this] { return has_rank_ended_.load(); }};
}

void Member::require_open() const {
  if (is_closed_)
    throw Error(ErrorKind::bad_input, fmt::format("team '{}' was closed; make a new Team and a new Engine", name()));
}

TeamBinding Member::trial_binding(std::uint32_t tag) const {
  TeamBinding trial = binding(tag);
  trial.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(trial_timeout).count());
  return trial;
}

TeamBinding Member::binding(std::uint32_t tag) const {
  require_open();
  TeamBinding binding;
  if (memory_ != nullptr) {
    const auto addresses = memory_->addresses();
    std::copy_n(addresses.begin(), std::min<std::size_t>(addresses.size(), most_ranks), binding.memory.begin());
    binding.half_bytes = half_bytes(bytes());
  }
  binding.report = reinterpret_cast<std::uint64_t>(report_);
  binding.timeout_ns =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout_).count());
  binding.rank = rank();
  binding.world = world();
  binding.tag = std::max(tag & 0xffffU, 1U);  // 0 is no plan's
  binding.nccl = nccl_.get();
  return binding;
}

bool Member::has_fault() const noexcept {
  return is_closed_.load(std::memory_order_relaxed) ||
         std::atomic_ref(report_->state).load(std::memory_order_acquire) != Report::none;
}

std::optional<Report> Member::fault() const noexcept {
  if (!has_fault()) return std::nullopt;
  return *report_;
}

void Member::abort() noexcept { std::atomic_ref(report_->abort).store(1, std::memory_order_release); }

void Member::reset() {
  require_open();
  const Patience patience(rendezvous_, rendezvous_.timeout() + timeout_);
  rendezvous_.barrier();                                 // no kernel of any rank writes from here on
  on_all_ranks(rendezvous_, "clearing its flags", [&] {  // all are clear before the first kernel writes
    if (nccl_ && nccl_->has_ended())
      throw Error(ErrorKind::team_failed,
                  "NCCL's communicator was aborted and does not come back; make a new Team and a new Engine");
    if (memory_ != nullptr) clear_flags();
    std::memset(report_, 0, sizeof *report_);
    if (has_rank_ended_) abort();  // which the line before may have undone
  });
}

void Member::clear_flags() const {
  const cuda::Context::Scope scope(context_);
  const cuda::RelaxedCapture relaxed;
  const cuda::Stream stream;
  const CUdeviceptr own = memory_->addresses()[static_cast<std::size_t>(rank())];
  const cuda::Driver& driver = cuda::Driver::get();
  cuda::check(driver.cuMemsetD8Async(own, 0, control_bytes, stream.handle()), "clearing a team's flags");
  cuda::check(driver.cuMemsetD8Async(own + static_cast<CUdeviceptr>(packets_offset(bytes())), 0, 2 * packet_bytes,
                                     stream.handle()),
              "clearing a team's packets");
  stream.synchronize();
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
    case Report::peer_failed:
      return fmt::format("rank {} ended a launch (epoch {}) because rank {} had failed: {}", rank,
                         report.expected_epoch, report.rank, why_peer_failed(report));
    case Report::nccl_aborted:
      return fmt::format("rank {} ended NCCL's collectives, since a rank has ended; their outputs hold anything", rank);
    case Report::nccl_failed:
      return fmt::format(
          "rank {} ended NCCL's collectives, since NCCL met an error; their outputs hold anything, and NCCL_DEBUG=WARN "
          "tells more",
          rank);
    case Report::two_launches:
      return fmt::format(
          "rank {} launched two ops of one team at once; a team's launches go to one stream, or wait for each other",
          rank);
    default: return "nothing";
  }
}

}  // namespace kiln::team

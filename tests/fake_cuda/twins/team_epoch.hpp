// How a twin takes part in a launch of a team: as templates/common/team/signals.cuh, in one thread. Other ranks are other processes.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "team/protocol.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {

class TeamEpoch {
 public:
  using Report = kiln::team::Report;

  TeamEpoch(const Invocation& call, const kiln::team::TeamArgument& team) : call_(call), team_(team) {
    epoch_ = (own().epoch + 1) & 0xffffffU;
    failed_ = own().failed != 0;
    fail_if_told(0);
  }

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// `bytes` of a symmetric workspace at its address in the first half, in this launch's half.
  [[nodiscard]] std::byte* in_half(std::uint64_t address, std::int64_t bytes) const {
    return call_.at<std::byte>(address + ((epoch_ & 1U) == 0 ? 0 : team_.half_bytes), bytes);
  }

  void send(int rank, int index, std::int64_t rows) const {
    auto& flag = control(rank).flags[static_cast<std::size_t>(team_.rank)][at(index)];
    std::atomic_ref(flag).store(expected() << 24 | static_cast<std::uint64_t>(rows), std::memory_order_release);
  }

  /// The rows of the flag, or -1 where this launch has failed.
  std::int64_t await(int rank, int index) {
    auto& flag = own().flags[static_cast<std::size_t>(rank)][at(index)];
    auto& report = *reinterpret_cast<Report*>(team_.report);
    const auto begun = std::chrono::steady_clock::now();
    while (!failed_) {
      const std::uint64_t seen = std::atomic_ref(flag).load(std::memory_order_acquire);
      if (seen >> 24 == expected()) return static_cast<std::int64_t>(seen & 0xffffffU);
      if (seen >> 40 == epoch_ && seen != 0) fail(report, Report::other_plan, rank, index, seen);
      if (std::atomic_ref(report.abort).load(std::memory_order_acquire) != 0)
        fail(report, Report::aborted, rank, index, seen);
      if (std::chrono::steady_clock::now() - begun > std::chrono::nanoseconds(team_.timeout_ns))
        fail(report, Report::timed_out, rank, index, seen);
      fail_if_told(seen);
      usleep(20);
    }
    return -1;
  }

  void end() { own().epoch = epoch_; }

 private:
  [[nodiscard]] kiln::team::Control& control(int rank) const {
    return *call_.at<kiln::team::Control>(team_.control[static_cast<std::size_t>(rank)], 1);
  }
  [[nodiscard]] kiln::team::Control& own() const { return control(team_.rank); }
  [[nodiscard]] std::size_t at(int index) const {
    return (epoch_ & 1U) * (kiln::team::most_flags / 2) + static_cast<std::size_t>(index);
  }
  [[nodiscard]] std::uint64_t expected() const { return std::uint64_t{epoch_} << 16 | team_.tag; }

  void fail(Report& report, Report::State why, int rank, int index, std::uint64_t seen, std::uint32_t told = 0) {
    failed_ = true;
    if (std::exchange(own().failed, 1U) != 0) return;
    report.rank = rank;
    report.flag = index;
    report.expected_epoch = epoch_;
    report.seen_epoch = static_cast<std::uint32_t>(seen >> 40);
    report.expected_tag = team_.tag;
    report.seen_tag = static_cast<std::uint32_t>(seen >> 24) & 0xffffU;
    report.peer_state = told >> 16 & 0xffU;
    report.peer_rank = static_cast<std::int32_t>(told >> 8 & 0xffU);
    std::atomic_ref(report.state).store(why, std::memory_order_release);
    if (told != 0) return;
    const auto tells = 1U << 31 | std::uint32_t{why} << 16 | static_cast<std::uint32_t>(rank << 8 | team_.rank);
    for (int peer = 0; peer < team_.world; ++peer)
      if (peer != team_.rank) std::atomic_ref(control(peer).told).store(tells, std::memory_order_relaxed);
  }
  void fail_if_told(std::uint64_t seen) {
    const std::uint32_t told = std::atomic_ref(own().told).load(std::memory_order_relaxed);
    if (failed_ || told == 0) return;
    fail(*reinterpret_cast<Report*>(team_.report), Report::peer_failed, static_cast<int>(told & 0xffU), 0, seen, told);
  }

  const Invocation& call_;
  const kiln::team::TeamArgument& team_;
  std::uint32_t epoch_ = 0;
  bool failed_ = false;
};

}  // namespace fake_cuda

// The ranks of a team once they have met: what they exchange, and how one learns that another has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "team/meeting.hpp"

namespace kiln::team {

/// Every rank calls the same collectives in the same order. A collective throws Error(team_failed) when a rank has
/// ended or left, when one calls another collective, and when one does not come within the time-out; it names the rank.
/// After a failure the team is broken: this rank tells the others why and leaves, and each later call throws the same
/// error.
/// A rank that came last may have succeeded where the others had given up, and then learns that in its next call.
/// For one thread at a time.
class Rendezvous {
 public:
  static constexpr std::size_t longest_bytes = std::size_t{64} << 10;

  /// Meets the other ranks: those of this host, or with an address those of any host. Throws as meet() and meet_at()
  /// do.
  Rendezvous(const Membership& membership, std::chrono::milliseconds timeout, const std::string& address = {});
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  ~Rendezvous();

  [[nodiscard]] const Membership& membership() const noexcept { return membership_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

  /// Returns what each rank gave, by rank. Throws Error(bad_input) for more than longest_bytes.
  std::vector<std::string> all_gather(std::string_view own);
  void barrier();
  /// Returns a descriptor from each rank, by rank: new ones of what the others gave, and none for this rank. `own`
  /// stays open. Throws Error(team_failed) for ranks that met at an address.
  std::vector<Descriptor> exchange(int own);
  /// How long a collective waits for the other ranks from now on.
  void set_timeout(std::chrono::milliseconds timeout) noexcept { timeout_ = timeout; }
  /// A new descriptor, for which poll(2) gives one of `events` once another rank has ended.
  struct Watched {
    Descriptor descriptor;
    short events = 0;
  };
  /// Of each process that this one sees. Of ranks that met at an address: of their connections, which also a rank that
  /// leaves closes.
  [[nodiscard]] std::vector<Watched> watched() const;
  /// Throws as a collective does when a rank has ended or left. Waits for nothing.
  void check();

 private:
  enum class Kind : std::uint32_t;
  struct Round;

  std::vector<Message> collect(Kind kind, std::string_view own, int descriptor);
  /// Calls `work`. Tells the others of an error of this rank's own, as of its sockets, before it throws that.
  template <typename Work>
  void attempt(const std::string& doing, Work work);
  void send_all(Round& round, std::string_view own, int descriptor);
  void receive_all(Round& round);
  /// Waits for a message or for room, and handles what has come. Fails at the round's end.
  void go_on(Round& round);
  void take(Round& round, int rank, bool has_ended);
  [[noreturn]] void hear_last_of(int rank);
  [[noreturn]] void fail(const std::string& what);
  void leave() noexcept;
  [[noreturn]] void fail_for(int rank, const std::string& doing);
  [[noreturn]] void fail_for_unsent(const Round& round, const std::vector<int>& ranks);
  [[nodiscard]] Peer& peer(int rank) { return *meeting_.peers[static_cast<std::size_t>(rank)]; }

  Membership membership_;
  int process_;  // a forked child leaves nothing
  std::chrono::milliseconds timeout_;
  Meeting meeting_;
  std::uint32_t rounds_ = 0;  // collectives begun
  std::string failure_;       // empty until one failed
};

}  // namespace kiln::team

// A rank that looks for the others of its team, on one host or on several: whom it has met, and who greets it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "team/environment.hpp"
#include "team/link.hpp"

namespace kiln::team {

struct Peer {
  Link link;
  int process = 0;     // 0 where this process cannot see it
  Descriptor watched;  // a pidfd, readable once the process has ended; none where the kernel or a container refuses
};

struct Meeting {
  Descriptor address;  // of one host: holds this rank's, so that no other process can claim the rank
  std::vector<std::optional<Peer>> peers;  // by rank; none for this rank
};

/// What a rank says first. Ranks of one host say the first 40 bytes, to each other.
struct Greeting {
  manifest::Digest team{};  // by its name and the protocol: ranks of another protocol ignore each other
  std::int32_t rank = 0, world = 0;
  std::array<std::uint8_t, 16> session{};  // of one meeting, as rank 0 told: ranks of an earlier one are told apart
  std::uint32_t port = 0;                  // where it listens
};
static_assert(sizeof(Greeting) == 60);

template <typename Value>
std::string_view as_bytes(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

class Seeker {
 protected:
  struct Guest {
    Link link;
    Greeting greeting;
  };

  Seeker(const Membership& membership, Link::Kind kind, const manifest::Digest& team, Clock::time_point end);

  [[nodiscard]] std::string_view own_greeting() const noexcept { return as_bytes(own_).substr(0, greeting_bytes_); }
  /// Nothing where the message is no greeting of a rank of this team.
  [[nodiscard]] std::optional<Greeting> parse(const std::string& message) const;
  /// Returns the next that connects and greets, or nothing at `until`. What sends anything else is closed; on one host
  /// another user is, too.
  std::optional<Guest> next_guest(const Descriptor& listening, Clock::time_point until);

  [[nodiscard]] std::optional<Peer>& peer(int rank) { return met_.peers[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::vector<int> missing() const;
  void require_same_world(int rank, int world) const;
  [[noreturn]] void fail(ErrorKind kind, const std::string& what) const;

  Membership membership_;
  Clock::time_point end_;
  Greeting own_;
  Meeting met_;

 private:
  std::optional<Guest> hear(std::size_t stranger);
  void let_in(const Descriptor& listening);

  Link::Kind kind_;
  std::size_t greeting_bytes_;
  std::deque<Link> strangers_;  // connected, and not greeted yet
};

/// "rank 2", "ranks 2, 3"
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace kiln::team

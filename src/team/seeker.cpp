#include "team/seeker.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "manifest/shortage.hpp"
#include "team/endpoint.hpp"

namespace kiln::team {
namespace {

constexpr std::size_t most_strangers = 128;  // the oldest is closed for one more

}  // namespace

Seeker::Seeker(const Membership& membership, Link::Kind kind, const manifest::Digest& team, Clock::time_point end)
    : membership_(membership),
      end_(end),
      own_{team, membership.rank, membership.world, {}, 0},
      kind_(kind),
      greeting_bytes_(kind == Link::Kind::packets ? offsetof(Greeting, session) : sizeof(Greeting)) {
  check_membership(membership);
  met_.peers.resize(static_cast<std::size_t>(membership.world));
}

std::optional<Greeting> Seeker::parse(const std::string& message) const {
  Greeting greeting;
  if (message.size() != greeting_bytes_) return std::nullopt;
  std::memcpy(&greeting, message.data(), greeting_bytes_);
  return greeting.team == own_.team ? std::optional(greeting) : std::nullopt;
}

std::optional<Seeker::Guest> Seeker::next_guest(const Descriptor& listening, Clock::time_point until) {
  for (;;) {
    std::vector<pollfd> waiting = {{listening.get(), POLLIN, 0}};
    for (const Link& each : strangers_) waiting.push_back({each.descriptor(), POLLIN, 0});
    if (poll(waiting.data(), waiting.size(), milliseconds_until(until)) <= 0) {
      if (Clock::now() >= until) return std::nullopt;
      continue;
    }
    for (std::size_t i = strangers_.size(); i-- > 0;)
      if (waiting[i + 1].revents != 0)
        if (std::optional<Guest> guest = hear(i)) return guest;
    if (waiting.front().revents != 0) let_in(listening);
  }
}

/// Takes a greeting that has arrived whole.
std::optional<Seeker::Guest> Seeker::hear(std::size_t stranger) {
  Message message;
  const Link::Outcome state = strangers_[stranger].receive(message, Clock::now());
  if (state == Link::Outcome::late) return std::nullopt;
  Link link = std::move(strangers_[stranger]);
  strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(stranger));
  const auto greeting = state == Link::Outcome::done ? parse(message.bytes) : std::nullopt;
  if (!greeting) return std::nullopt;
  return Guest{std::move(link), *greeting};
}

void Seeker::let_in(const Descriptor& listening) {
  Descriptor accepted = accept_at(listening);
  if (!accepted) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)  // otherwise it has gone again
      fail(ErrorKind::io, fmt::format("a connection cannot be accepted: {}", manifest::refusal_text(errno)));
    return;
  }
  Link link(std::move(accepted), kind_);
  if (kind_ == Link::Kind::packets && owner_of(link).user != geteuid()) return;
  if (strangers_.size() == most_strangers) strangers_.pop_front();
  strangers_.push_back(std::move(link));
}

std::vector<int> Seeker::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < membership_.world; ++rank)
    if (rank != membership_.rank && !met_.peers[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  return ranks;
}

void Seeker::require_same_world(int rank, int world) const {
  if (world == membership_.world) return;
  fail(ErrorKind::bad_input, fmt::format("rank {} was given a world of {} ranks; give all ranks the same world, and "
                                         "each team a name of its own",
                                         rank, world));
}

void Seeker::fail(ErrorKind kind, const std::string& what) const {
  throw Error(kind,
              fmt::format("team '{}', rank {} of {}: {}", membership_.name, membership_.rank, membership_.world, what));
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace kiln::team

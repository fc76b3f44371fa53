#include "team/meeting.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "manifest/shortage.hpp"
#include "team/endpoint.hpp"
#include "team/seeker.hpp"

namespace kiln::team {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t network_protocol = 1;  // ranks of another protocol ignore each other
constexpr milliseconds between_connects{50};
constexpr milliseconds longest_try{2'000};  // to connect to a host that does not answer

/// What rank 0 says at once.
struct Answer {
  manifest::Digest team{};
  std::int32_t world = 0;
  std::int32_t is_claimed = 0;  // another process has the rank
};
static_assert(sizeof(Answer) == 40);

/// Where a rank listens.
struct RankPlace {
  Endpoint at;
  std::uint16_t with_rank_0 = 0;  // not 0: on the host of rank 0, as each rank reaches that
};
static_assert(sizeof(RankPlace) == 20);

constexpr char is_told = 't',
               has_failed = 'f';  // before a session and the ranks' places, or before the words of an error

bool has_left(const Link& link) {
  pollfd end{link.descriptor(), POLLRDHUP, 0};
  return poll(&end, 1, 0) > 0;
}

class NetworkSeeker : public Seeker {
 public:
  NetworkSeeker(const std::string& address, const Membership& membership, Clock::time_point end)
      : Seeker(membership, Link::Kind::stream,
               manifest::Hasher().field("kiln-team-network").field(network_protocol).field(membership.name).finish(),
               end),
        text_(address),
        address_(parse_address(address)) {}

  Meeting seek() {
    if (membership_.world > 1) membership_.rank == 0 ? gather() : join();
    return std::move(met_);
  }

 private:
  /// Rank 0: hears of all ranks, then tells them of each other.
  void gather() {
    std::vector<RankPlace> places(met_.peers.size());
    try {
      for (const Descriptor listening = claim(); !missing().empty();) {
        std::optional<Guest> guest = next_guest(listening, end_);
        if (!guest) fail_for_missing();
        welcome(std::move(*guest), places);
        forget_those_that_left();
      }
    } catch (const Error& error) {
      tell_all(has_failed + std::string(error.what()));
      throw;
    }
    std::random_device random;
    for (std::uint8_t& each : own_.session) each = static_cast<std::uint8_t>(random());
    std::string told(1, is_told);
    told += as_bytes(own_.session);
    for (const RankPlace& each : places) told += as_bytes(each);
    tell_all(told);
  }

  [[nodiscard]] Descriptor claim() const {
    Endpoint own = numeric(address_).value_or(Endpoint{});  // a host's name may stand for the loopback interface there
    own.port = address_.port;
    Descriptor listening = listen_at(own);
    if (listening) return listening;
    if (errno == EADDRINUSE)
      fail(ErrorKind::io, fmt::format("{} is in use: another process has claimed rank 0, or another program listens "
                                      "there; give each process a rank of its own, or the team another port",
                                      text_));
    fail(ErrorKind::io, fmt::format("{} cannot be listened at: {}; give an address of the host of rank 0", text_,
                                    std::strerror(errno)));
  }

  void welcome(Guest guest, std::vector<RankPlace>& places) {
    const Greeting& greeting = guest.greeting;
    const bool is_same_world = greeting.world == membership_.world;
    forget_those_that_left();
    if (is_same_world && (greeting.rank < 1 || greeting.rank >= membership_.world)) return;
    const bool is_claimed = is_same_world && peer(greeting.rank);
    const Answer answer{own_.team, membership_.world, is_claimed ? 1 : 0};
    if (guest.link.send(as_bytes(answer), -1, end_) != Link::Outcome::done) return;
    require_same_world(greeting.rank, greeting.world);
    if (is_claimed) return;
    RankPlace& place = places[static_cast<std::size_t>(greeting.rank)];
    place.at = other_end(guest.link.descriptor());
    place.with_rank_0 = place.at.ip == own_end(guest.link.descriptor()).ip ? 1 : 0;
    place.at.port = static_cast<std::uint16_t>(greeting.port);
    peer(greeting.rank) = Peer{std::move(guest.link), 0, {}};
  }

  /// Their successors may yet come.
  void forget_those_that_left() {
    for (auto& each : met_.peers)
      if (each && has_left(each->link)) each.reset();
  }

  void tell_all(const std::string& told) const {
    for (const auto& each : met_.peers)
      if (each) static_cast<void>(each->link.send(told, -1, std::max(end_, Clock::now() + between_connects)));
  }

  /// The others: rank 0 first, then those of lower rank, then those of higher.
  void join() {
    const Descriptor listening = own_door();
    own_.port = own_end(listening.get()).port;
    Link first = greet_rank_0();
    const std::vector<RankPlace> places = hear_places(first);
    const Endpoint host_of_rank_0 = other_end(first.descriptor());
    peer(0) = Peer{std::move(first), 0, {}};
    for (int rank = 1; rank < membership_.rank; ++rank) {
      const RankPlace& place = places[static_cast<std::size_t>(rank)];
      Endpoint at = place.at;
      if (place.with_rank_0 != 0) at.ip = host_of_rank_0.ip;
      peer(rank) = Peer{greet(rank, at), 0, {}};
    }
    while (!missing().empty()) {
      std::optional<Guest> guest = next_guest(listening, end_);
      if (!guest) fail_for_missing();
      const Greeting& greeting = guest->greeting;
      if (greeting.session != own_.session || greeting.rank <= membership_.rank || greeting.rank >= membership_.world)
        continue;
      if (!peer(greeting.rank)) peer(greeting.rank) = Peer{std::move(guest->link), 0, {}};
    }
  }

  /// At a port that the system chooses, but not rank 0's, which may yet begin to listen on this host.
  [[nodiscard]] Descriptor own_door() const {
    Descriptor listening = listen_at({});
    if (listening && own_end(listening.get()).port == address_.port) {
      Descriptor other = listen_at({});
      listening = std::move(other);
    }
    if (!listening) fail(ErrorKind::io, fmt::format("no port can be listened at: {}", manifest::refusal_text(errno)));
    return listening;
  }

  /// Returns the link once rank 0 has answered. Whoever listens there may be of another team, which will end.
  [[nodiscard]] Link greet_rank_0() const {
    std::string why = "there was no time to ask";
    for (; Clock::now() < end_; std::this_thread::sleep_for(between_connects)) {
      const Resolved resolved = resolve(address_);
      if (resolved.endpoints.empty()) why = fmt::format("the host is not known: {}", resolved.why_none);
      for (const Endpoint& each : resolved.endpoints) {
        std::optional<Link> link = link_to(each);
        if (!link) {
          why = fmt::format("{}: {}", to_string(each), std::strerror(errno));
          continue;
        }
        why = fmt::format("who listens at {} did not answer as rank 0 of this team", to_string(each));
        Message message;
        Answer answer;
        if (link->send(own_greeting(), -1, end_) != Link::Outcome::done ||
            link->receive(message, end_) != Link::Outcome::done || message.bytes.size() != sizeof answer)
          continue;
        std::memcpy(&answer, message.bytes.data(), sizeof answer);
        if (answer.team != own_.team) continue;
        require_same_world(0, answer.world);
        if (answer.is_claimed != 0)
          fail(ErrorKind::io,
               "another process has claimed this rank already; give each process a rank of its own, and each team a "
               "name of its own");
        return std::move(*link);
      }
    }
    fail(ErrorKind::team_failed,
         fmt::format("rank 0 was not met at {} in time ({}); see that it was started on that host, and that all ranks "
                     "have the same address, name and world",
                     text_, why));
  }

  /// Hears from rank 0 where the ranks listen, and the session.
  [[nodiscard]] std::vector<RankPlace> hear_places(const Link& first) {
    Message message;
    const Link::Outcome state = first.receive(message, end_);
    if (state == Link::Outcome::late)
      fail(ErrorKind::team_failed,
           "rank 0 has come, and not all ranks came to it in time; its error names those that did not");
    if (state == Link::Outcome::closed)
      fail(ErrorKind::team_failed, "rank 0 has ended or left before all ranks had come");
    std::string& told = message.bytes;
    if (told.front() == has_failed) throw Error(ErrorKind::team_failed, told.substr(1));
    std::vector<RankPlace> places(met_.peers.size());
    const std::size_t bytes = places.size() * sizeof(RankPlace);
    if (told.size() != 1 + own_.session.size() + bytes) fail(ErrorKind::io, "rank 0 sent what is no message of a team");
    std::memcpy(own_.session.data(), told.data() + 1, own_.session.size());
    std::memcpy(places.data(), told.data() + 1 + own_.session.size(), bytes);
    return places;
  }

  /// A rank that rank 0 has met listens already.
  [[nodiscard]] Link greet(int rank, const Endpoint& at) const {
    for (;; std::this_thread::sleep_for(between_connects)) {
      std::optional<Link> link = link_to(at);
      const int failed = errno;
      if (link && link->send(own_greeting(), -1, end_) == Link::Outcome::done) return std::move(*link);
      if (failed != ECONNREFUSED && Clock::now() < end_) continue;
      fail(ErrorKind::team_failed,
           fmt::format("rank {} cannot be reached at {}: {}. It has ended, or a firewall keeps ranks "
                       "from the ports at which they listen to each other, which the system chooses",
                       rank, to_string(at), std::strerror(failed)));
    }
  }

  [[nodiscard]] std::optional<Link> link_to(const Endpoint& at) const {
    Descriptor connected = connect_to(at, std::min(end_, Clock::now() + longest_try));
    if (!connected) return std::nullopt;
    return Link(std::move(connected), Link::Kind::stream);
  }

  [[noreturn]] void fail_for_missing() const {
    fail(ErrorKind::team_failed,
         fmt::format("{} did not come in time; see that each was started, can reach {}, and has the same "
                     "address, name and world",
                     ranks_text(missing()), text_));
  }

  std::string text_;
  HostAndPort address_;
};

}  // namespace

Meeting meet_at(const std::string& address, const Membership& membership, Clock::time_point end) {
  return NetworkSeeker(address, membership, end).seek();
}

}  // namespace kiln::team

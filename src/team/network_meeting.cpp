#include "team/network_meeting.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <utility>

#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "manifest/shortage.hpp"
#include "team/endpoint.hpp"

namespace kiln::team {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t network_protocol = 1;  // ranks of another protocol ignore each other
constexpr milliseconds between_connects{50};
constexpr milliseconds longest_try{2'000};   // to connect to a host that does not answer
constexpr std::size_t most_strangers = 128;  // connected, and not greeted yet: the oldest is closed for one more

using Session = std::array<std::uint8_t, 16>;  // of one meeting, so that ranks of an earlier one are told apart

/// What a rank says first.
struct NetworkGreeting {
  manifest::Digest team{};
  std::int32_t rank = 0, world = 0;
  Session session{};       // to other ranks than 0, as rank 0 told
  std::uint32_t port = 0;  // where it listens
};
static_assert(sizeof(NetworkGreeting) == 60);

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

template <typename Value>
std::string_view as_bytes(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename Value>
std::optional<Value> parse(const std::string& bytes) {
  Value value;
  if (bytes.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

Session new_session() {
  std::random_device random;
  Session session{};
  for (std::uint8_t& each : session) each = static_cast<std::uint8_t>(random());
  return session;
}

bool has_left(const Link& link) {
  pollfd end{link.descriptor(), POLLRDHUP, 0};
  return poll(&end, 1, 0) > 0;
}

/// Who connects and greets, one after another.
class Door {
 public:
  Door(Descriptor listening, const manifest::Digest& team) : listening_(std::move(listening)), team_(team) {}

  struct Guest {
    Link link;
    NetworkGreeting greeting;
  };
  /// The next that greets with the team's digest; nothing at `end`. Throws Error(io), without the team's name.
  std::optional<Guest> next(Clock::time_point end) {
    for (;;) {
      std::vector<pollfd> waiting = {{listening_.get(), POLLIN, 0}};
      for (const Link& each : strangers_) waiting.push_back({each.descriptor(), POLLIN, 0});
      if (poll(waiting.data(), waiting.size(), milliseconds_until(end)) <= 0) {
        if (Clock::now() >= end) return std::nullopt;
        continue;
      }
      for (std::size_t i = strangers_.size(); i-- > 0;)
        if (waiting[i + 1].revents != 0)
          if (std::optional<Guest> guest = hear(i)) return guest;
      if (waiting.front().revents != 0) let_in();
    }
  }
  [[nodiscard]] std::uint16_t port() const { return own_end(listening_.get()).port; }

 private:
  /// Takes a greeting that has arrived whole. Whoever sends anything else is closed.
  std::optional<Guest> hear(std::size_t index) {
    Message message;
    const Link::State state = strangers_[index].receive(message, Clock::now());
    if (state == Link::State::late) return std::nullopt;
    Link link = std::move(strangers_[index]);
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
    const auto greeting = state == Link::State::done ? parse<NetworkGreeting>(message.bytes) : std::nullopt;
    if (!greeting || greeting->team != team_) return std::nullopt;
    return Guest{std::move(link), *greeting};
  }

  void let_in() {
    Descriptor accepted = accept_at(listening_);
    if (accepted) {
      if (strangers_.size() == most_strangers) strangers_.pop_front();
      strangers_.emplace_back(std::move(accepted), Link::Kind::stream);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {  // others have gone again
      throw Error(ErrorKind::io, fmt::format("a connection cannot be accepted: {}", manifest::refusal_text(errno)));
    }
  }

  Descriptor listening_;
  manifest::Digest team_;
  std::deque<Link> strangers_;  // connected, and not greeted yet
};

class NetworkSeeker {
 public:
  NetworkSeeker(const std::string& address, const Membership& membership, Clock::time_point end)
      : text_(address),
        address_(parse_address(address)),
        membership_(membership),
        end_(end),
        team_(manifest::Hasher().field("kiln-team-network").field(network_protocol).field(membership.name).finish()) {
    met_.peers.resize(static_cast<std::size_t>(membership.world));
  }

  Meeting seek() {
    if (membership_.world > 1) membership_.rank == 0 ? gather() : join();
    return std::move(met_);
  }

 private:
  [[noreturn]] void fail(ErrorKind kind, const std::string& what) const {
    throw Error(
        kind, fmt::format("Team '{}', rank {} of {}: {}", membership_.name, membership_.rank, membership_.world, what));
  }

  /// Rank 0: hears of all ranks, then tells them of each other.
  void gather() {
    std::vector<RankPlace> places(met_.peers.size());
    try {
      for (Door door(claim(), team_); !missing().empty();) {
        std::optional<Door::Guest> guest = next_of(door);
        if (!guest) fail_for_missing();
        welcome(std::move(*guest), places);
        forget_those_that_left();
      }
    } catch (const Error& error) {
      tell_all(has_failed + std::string(error.what()));
      throw;
    }
    std::string told(1, is_told);
    told += as_bytes(new_session());
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
                                      "there; give each process a rank of its own, or the team another port.",
                                      text_));
    fail(ErrorKind::io, fmt::format("{} cannot be listened at: {}; give an address of the host of rank 0.", text_,
                                    std::strerror(errno)));
  }

  void welcome(Door::Guest guest, std::vector<RankPlace>& places) {
    const NetworkGreeting& greeting = guest.greeting;
    const bool is_same_world = greeting.world == membership_.world;
    forget_those_that_left();
    if (is_same_world && (greeting.rank < 1 || greeting.rank >= membership_.world)) return;
    const auto rank = static_cast<std::size_t>(greeting.rank);
    const bool is_claimed = is_same_world && met_.peers[rank].has_value();
    const Answer answer{team_, membership_.world, is_claimed ? 1 : 0};
    if (guest.link.send(as_bytes(answer), -1, end_) != Link::State::done) return;
    require_same_world(greeting.rank, greeting.world);
    if (is_claimed) return;
    RankPlace& place = places[rank];
    place.at = other_end(guest.link.descriptor());
    place.with_rank_0 = place.at.ip == own_end(guest.link.descriptor()).ip ? 1 : 0;
    place.at.port = static_cast<std::uint16_t>(greeting.port);
    met_.peers[rank] = Peer{std::move(guest.link), 0, {}};
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
    Door door(own_door(), team_);
    NetworkGreeting own{team_, membership_.rank, membership_.world, {}, door.port()};
    Link first = greet_rank_0(own);
    const std::vector<RankPlace> places = hear_places(first, own.session);
    const Endpoint host_of_rank_0 = other_end(first.descriptor());
    met_.peers.front() = Peer{std::move(first), 0, {}};
    for (int rank = 1; rank < membership_.rank; ++rank) {
      const RankPlace& place = places[static_cast<std::size_t>(rank)];
      Endpoint at = place.at;
      if (place.with_rank_0 != 0) at.ip = host_of_rank_0.ip;
      met_.peers[static_cast<std::size_t>(rank)] = Peer{greet(rank, at, own), 0, {}};
    }
    while (!missing().empty()) {
      std::optional<Door::Guest> guest = next_of(door);
      if (!guest) fail_for_missing();
      const NetworkGreeting& greeting = guest->greeting;
      if (greeting.session != own.session || greeting.rank <= membership_.rank || greeting.rank >= membership_.world)
        continue;
      auto& peer = met_.peers[static_cast<std::size_t>(greeting.rank)];
      if (!peer) peer = Peer{std::move(guest->link), 0, {}};
    }
  }

  /// At a port that the system chooses, but not rank 0's, which may yet begin to listen on this host.
  [[nodiscard]] Descriptor own_door() const {
    Descriptor listening = listen_at({});
    if (listening && own_end(listening.get()).port == address_.port) {
      Descriptor other = listen_at({});
      listening = std::move(other);
    }
    if (!listening) fail(ErrorKind::io, fmt::format("no port can be listened at: {}.", manifest::refusal_text(errno)));
    return listening;
  }

  [[nodiscard]] std::optional<Door::Guest> next_of(Door& door) const {
    try {
      return door.next(end_);
    } catch (const Error& error) {
      fail(ErrorKind::io, fmt::format("{}.", error.what()));
    }
  }

  /// Returns the link once rank 0 has answered. Whoever listens there may be of another team, which will end.
  [[nodiscard]] Link greet_rank_0(const NetworkGreeting& own) const {
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
        if (link->send(as_bytes(own), -1, end_) != Link::State::done ||
            link->receive(message, end_) != Link::State::done)
          continue;
        const auto answer = parse<Answer>(message.bytes);
        if (!answer || answer->team != team_) continue;
        require_same_world(0, answer->world);
        if (answer->is_claimed != 0)
          fail(ErrorKind::io,
               "another process has claimed this rank already; give each process a rank of its own, and each team a "
               "name of its own.");
        return std::move(*link);
      }
    }
    fail(ErrorKind::io,
         fmt::format("rank 0 was not met at {} in time ({}); see that it was started on that host, and that all ranks "
                     "have the same address, name and world.",
                     text_, why));
  }

  /// Hears from rank 0 where the ranks listen.
  [[nodiscard]] std::vector<RankPlace> hear_places(const Link& first, Session& session) const {
    Message message;
    const Link::State state = first.receive(message, end_);
    if (state == Link::State::late)
      fail(ErrorKind::io, "rank 0 has come, and not all ranks came to it in time; its error names those that did not.");
    if (state == Link::State::closed) fail(ErrorKind::io, "rank 0 has ended or left before all ranks had come.");
    std::string& told = message.bytes;
    if (told.front() == has_failed) throw Error(ErrorKind::io, told.substr(1));
    std::vector<RankPlace> places(met_.peers.size());
    const std::size_t bytes = places.size() * sizeof(RankPlace);
    if (told.size() != 1 + session.size() + bytes) fail(ErrorKind::io, "rank 0 sent what is no message of a team.");
    std::memcpy(session.data(), told.data() + 1, session.size());
    std::memcpy(places.data(), told.data() + 1 + session.size(), bytes);
    return places;
  }

  /// A rank that rank 0 has met listens already.
  [[nodiscard]] Link greet(int rank, const Endpoint& at, const NetworkGreeting& own) const {
    for (;; std::this_thread::sleep_for(between_connects)) {
      std::optional<Link> link = link_to(at);
      const int failed = errno;
      if (link && link->send(as_bytes(own), -1, end_) == Link::State::done) return std::move(*link);
      if (failed != ECONNREFUSED && Clock::now() < end_) continue;
      fail(ErrorKind::io, fmt::format("rank {} cannot be reached at {}: {}. It has ended, or a firewall keeps ranks "
                                      "from the ports at which they listen to each other, which the system chooses.",
                                      rank, to_string(at), std::strerror(failed)));
    }
  }

  [[nodiscard]] std::optional<Link> link_to(const Endpoint& at) const {
    Descriptor connected = connect_to(at, std::min(end_, Clock::now() + longest_try));
    if (!connected) return std::nullopt;
    return Link(std::move(connected), Link::Kind::stream);
  }

  void require_same_world(int rank, int world) const {
    if (world == membership_.world) return;
    fail(ErrorKind::bad_input, fmt::format("rank {} was given a world of {} ranks; give all ranks the same world, and "
                                           "each team a name of its own.",
                                           rank, world));
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < membership_.world; ++rank)
      if (rank != membership_.rank && !met_.peers[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    return ranks;
  }

  [[noreturn]] void fail_for_missing() const {
    fail(ErrorKind::io,
         fmt::format("{} did not come in time; see that each was started, can reach {}, and has the same "
                     "address, name and world.",
                     ranks_text(missing()), text_));
  }

  std::string text_;
  HostAndPort address_;
  Membership membership_;
  Clock::time_point end_;
  manifest::Digest team_;
  Meeting met_;
};

}  // namespace

Meeting meet_at(const std::string& address, const Membership& membership, Clock::time_point end) {
  check_membership(membership);
  return NetworkSeeker(address, membership, end).seek();
}

}  // namespace kiln::team

#include "team/meeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "manifest/shortage.hpp"

namespace kiln::team {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t protocol = 1;  // ranks of another protocol have other addresses
constexpr milliseconds between_tries{5};
constexpr milliseconds between_looks{100};

/// What a rank says first, and hears back.
struct Greeting {
  manifest::Digest team{};
  std::int32_t rank = 0;
  std::int32_t world = 0;
};
static_assert(sizeof(Greeting) == 40);

std::string_view as_bytes(const Greeting& greeting) {
  return {reinterpret_cast<const char*>(&greeting), sizeof greeting};
}

Descriptor new_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) throw Error(ErrorKind::io, fmt::format("Opening a socket for a team: {}", manifest::refusal_text(errno)));
  return made;
}

/// A place in the abstract namespace, which needs no file and goes with its socket.
struct Address {
  sockaddr_un place{};
  socklen_t bytes = 0;

  Address(const manifest::Digest& team, int rank) {
    place.sun_family = AF_UNIX;
    const std::string name = fmt::format("kiln-team/{}/{}/{}", geteuid(), manifest::to_hex(team).substr(0, 32), rank);
    name.copy(place.sun_path + 1, sizeof place.sun_path - 1);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&place); }
};

std::string process_text(int process) {
  return process > 0 ? fmt::format("process {}", process) : "a process that cannot be seen from here";
}

class Seeker {
 public:
  Seeker(const Membership& membership, Clock::time_point end)
      : membership_(membership),
        end_(end),
        own_{manifest::Hasher().field("kiln-team").field(protocol).field(membership.name).finish(), membership.rank,
             membership.world} {
    met_.peers.resize(static_cast<std::size_t>(membership.world));
    seen_.resize(met_.peers.size());
  }

  Meeting seek() {
    claim();
    for (int rank = 0; rank < membership_.rank; ++rank) join(rank);
    await_higher();
    return std::move(met_);
  }

 private:
  [[noreturn]] void fail(ErrorKind kind, const std::string& what) const {
    throw Error(
        kind, fmt::format("Team '{}', rank {} of {}: {}", membership_.name, membership_.rank, membership_.world, what));
  }

  void claim() {
    met_.address = new_socket();
    const Address own(own_.team, membership_.rank);
    if (bind(met_.address.get(), own.get(), own.bytes) != 0) {
      if (errno != EADDRINUSE)
        fail(ErrorKind::io, fmt::format("its address cannot be bound: {}.", std::strerror(errno)));
      const std::optional<Link> holder = connect_to(membership_.rank);
      fail(ErrorKind::io, fmt::format("{} has claimed this rank already; give each process a rank of its own, and each "
                                      "team a name of its own.",
                                      holder ? process_text(owner_of(*holder).process) : "a process"));
    }
    if (listen(met_.address.get(), largest_world) != 0)
      fail(ErrorKind::io, fmt::format("its address cannot be listened at: {}.", std::strerror(errno)));
  }

  /// Nothing where nobody listens, or too many wait already.
  [[nodiscard]] std::optional<Link> connect_to(int rank) {
    Descriptor made = new_socket();
    const Address address(own_.team, rank);
    const bool connected = connect(made.get(), address.get(), address.bytes) == 0;
    if (connected || errno == EAGAIN) seen_[static_cast<std::size_t>(rank)] = true;
    if (!connected) return std::nullopt;
    return Link(std::move(made));
  }

  void join(int rank) {
    for (; Clock::now() < end_; std::this_thread::sleep_for(between_tries)) {
      std::optional<Link> link = connect_to(rank);
      if (!link) {
        look_for_others();
        continue;
      }
      if (const Owner owner = owner_of(*link); owner.user != geteuid())
        fail(ErrorKind::io, fmt::format("user {} holds the address of rank {}, in {}; choose another name.", owner.user,
                                        rank, process_text(owner.process)));
      if (link->send(as_bytes(own_), -1, end_) != Link::State::done) continue;
      Message answer;
      const Link::State state = link->receive(answer, end_);
      if (state == Link::State::late) break;
      const std::optional<Greeting> greeting = parse(answer);  // none from a process that has just left another team
      if (state != Link::State::done || !greeting || greeting->rank != rank) continue;
      require_same_world(*greeting);
      return admit(rank, std::move(*link));
    }
    fail_for_missing();
  }

  void await_higher() {
    std::vector<Link> unknown;  // connected, and not greeted yet
    while (!missing().empty()) {
      if (Clock::now() >= end_) fail_for_missing();
      std::vector<pollfd> waiting = {{met_.address.get(), POLLIN, 0}};
      for (const Link& each : unknown) waiting.push_back({each.descriptor(), POLLIN, 0});
      const auto look = std::min(end_, Clock::now() + between_looks);
      if (poll(waiting.data(), waiting.size(), milliseconds_until(look)) <= 0) {
        look_for_others();
        continue;
      }
      for (std::size_t i = unknown.size(); i-- > 0;) {
        if (waiting[i + 1].revents == 0) continue;
        hear(std::move(unknown[i]));
        unknown.erase(unknown.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (waiting[0].revents == 0) continue;
      if (std::optional<Link> link = accept(); link && owner_of(*link).user == geteuid())
        unknown.push_back(std::move(*link));
    }
  }

  /// Nothing where the one that connected has gone.
  [[nodiscard]] std::optional<Link> accept() const {
    Descriptor accepted(accept4(met_.address.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted) return Link(std::move(accepted));
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
      fail(ErrorKind::io, fmt::format("a connection cannot be accepted: {}.", manifest::refusal_text(errno)));
    return std::nullopt;
  }

  /// Takes the greeting that has arrived; a link that brings none is closed.
  void hear(Link link) {
    Message message;
    if (link.receive(message, Clock::now()) != Link::State::done) return;
    const std::optional<Greeting> greeting = parse(message);
    if (!greeting) return;
    const bool same_world = greeting->world == membership_.world;
    const bool awaited = greeting->rank > membership_.rank && greeting->rank < membership_.world &&
                         !met_.peers[static_cast<std::size_t>(greeting->rank)];
    if (same_world && !awaited) return;
    if (link.send(as_bytes(own_), -1, end_) != Link::State::done) return;
    require_same_world(*greeting);
    admit(greeting->rank, std::move(link));
  }

  [[nodiscard]] std::optional<Greeting> parse(const Message& message) const {
    Greeting greeting;
    if (message.bytes.size() != sizeof greeting) return std::nullopt;
    std::memcpy(&greeting, message.bytes.data(), sizeof greeting);
    return greeting.team == own_.team ? std::optional(greeting) : std::nullopt;
  }

  void require_same_world(const Greeting& greeting) const {
    if (greeting.world == membership_.world) return;
    fail(
        ErrorKind::bad_input,
        fmt::format("rank {} was given a world of {} ranks; give all ranks the same world, and each team a name of its "
                    "own.",
                    greeting.rank, greeting.world));
  }

  void admit(int rank, Link link) {
    const int process = owner_of(link).process;
    Descriptor watched(process > 0 ? static_cast<int>(syscall(SYS_pidfd_open, process, 0)) : -1);
    met_.peers[static_cast<std::size_t>(rank)] = Peer{std::move(link), process, std::move(watched)};
    seen_[static_cast<std::size_t>(rank)] = true;
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < membership_.world; ++rank)
      if (rank != membership_.rank && !met_.peers[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    return ranks;
  }

  /// Notes which of the missing ranks are there, and themselves wait for others.
  void look_for_others() {
    for (const int rank : missing())
      if (!seen_[static_cast<std::size_t>(rank)]) static_cast<void>(connect_to(rank));
  }

  [[noreturn]] void fail_for_missing() const {
    std::vector<int> named = missing();
    std::vector<int> never_seen;
    std::copy_if(named.begin(), named.end(), std::back_inserter(never_seen),
                 [&](int rank) { return !seen_[static_cast<std::size_t>(rank)]; });
    if (!never_seen.empty()) named = never_seen;
    fail(ErrorKind::io,
         fmt::format("{} did not come in time; see that each was started, on this host, by this user, and "
                     "with the same name and world.",
                     ranks_text(named)));
  }

  Membership membership_;
  Clock::time_point end_;
  Greeting own_;
  Meeting met_;
  std::vector<bool> seen_;  // by rank: somebody has listened at its address
};

}  // namespace

Meeting meet(const Membership& membership, Clock::time_point end) {
  check_membership(membership);
  return Seeker(membership, end).seek();
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace kiln::team

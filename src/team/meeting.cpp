#include "team/meeting.hpp"

#include <fmt/format.h>
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

#include "manifest/limits.hpp"
#include "manifest/shortage.hpp"
#include "team/seeker.hpp"

namespace kiln::team {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t protocol = 2;  // ranks of another protocol, or layout of memory, have other addresses
constexpr milliseconds between_tries{5};
constexpr milliseconds between_looks{100};

Descriptor new_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) throw Error(ErrorKind::io, fmt::format("opening a socket for a team: {}", manifest::refusal_text(errno)));
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

class HostSeeker : public Seeker {
 public:
  HostSeeker(const Membership& membership, Clock::time_point end)
      : Seeker(membership, Link::Kind::packets,
               manifest::Hasher().field("kiln-team").field(protocol).field(membership.name).finish(), end),
        seen_(met_.peers.size()) {}

  Meeting seek() {
    claim();
    for (int rank = 0; rank < membership_.rank; ++rank) join(rank);
    await_higher();
    return std::move(met_);
  }

 private:
  void claim() {
    met_.address = new_socket();
    const Address own(own_.team, membership_.rank);
    if (bind(met_.address.get(), own.get(), own.bytes) != 0) {
      if (errno != EADDRINUSE)
        fail(ErrorKind::io, fmt::format("its address cannot be bound: {}", std::strerror(errno)));
      const std::optional<Link> holder = link_to(membership_.rank);
      fail(ErrorKind::io, fmt::format("{} has claimed this rank already; give each process a rank of its own, and each "
                                      "team a name of its own",
                                      holder ? process_text(owner_of(*holder).process) : "a process"));
    }
    if (listen(met_.address.get(), manifest::most_team_ranks) != 0)
      fail(ErrorKind::io, fmt::format("its address cannot be listened at: {}", std::strerror(errno)));
  }

  /// Nothing where nobody listens, or too many wait already.
  [[nodiscard]] std::optional<Link> link_to(int rank) {
    Descriptor made = new_socket();
    const Address address(own_.team, rank);
    const bool connected = connect(made.get(), address.get(), address.bytes) == 0;
    if (connected || errno == EAGAIN) seen_[static_cast<std::size_t>(rank)] = true;
    if (!connected) return std::nullopt;
    return Link(std::move(made));
  }

  void join(int rank) {
    for (; Clock::now() < end_; std::this_thread::sleep_for(between_tries)) {
      std::optional<Link> link = link_to(rank);
      if (!link) {
        look_for_others();
        continue;
      }
      if (const Owner owner = owner_of(*link); owner.user != geteuid())
        fail(ErrorKind::io, fmt::format("user {} holds the address of rank {}, in {}; choose another name", owner.user,
                                        rank, process_text(owner.process)));
      if (link->send(own_greeting(), -1, end_) != Link::Outcome::done) continue;
      Message answer;
      const Link::Outcome state = link->receive(answer, end_);
      if (state == Link::Outcome::late) break;
      const std::optional<Greeting> greeting = parse(answer.bytes);  // none from a process that just left another team
      if (state != Link::Outcome::done || !greeting || greeting->rank != rank) continue;
      require_same_world(rank, greeting->world);
      return admit(rank, std::move(*link));
    }
    fail_for_missing();
  }

  void await_higher() {
    while (!missing().empty()) {
      if (Clock::now() >= end_) fail_for_missing();
      if (std::optional<Guest> guest = next_guest(met_.address, std::min(end_, Clock::now() + between_looks)))
        welcome(std::move(*guest));
      else
        look_for_others();
    }
  }

  void welcome(Guest guest) {
    const auto [team, rank, world, session, port] = guest.greeting;
    const bool awaited = rank > membership_.rank && rank < membership_.world && !peer(rank);
    if (world == membership_.world && !awaited) return;
    if (guest.link.send(own_greeting(), -1, end_) != Link::Outcome::done) return;
    require_same_world(rank, world);
    admit(rank, std::move(guest.link));
  }

  void admit(int rank, Link link) {
    const int process = owner_of(link).process;
    Descriptor watched(process > 0 ? static_cast<int>(syscall(SYS_pidfd_open, process, 0)) : -1);
    peer(rank) = Peer{std::move(link), process, std::move(watched)};
    seen_[static_cast<std::size_t>(rank)] = true;
  }

  /// Notes which of the missing ranks are there, and themselves wait for others.
  void look_for_others() {
    for (const int rank : missing())
      if (!seen_[static_cast<std::size_t>(rank)]) static_cast<void>(link_to(rank));
  }

  [[noreturn]] void fail_for_missing() const {
    std::vector<int> named = missing();
    std::vector<int> never_seen;
    std::copy_if(named.begin(), named.end(), std::back_inserter(never_seen),
                 [&](int rank) { return !seen_[static_cast<std::size_t>(rank)]; });
    if (!never_seen.empty()) named = never_seen;
    fail(ErrorKind::team_failed,
         fmt::format("{} did not come in time; see that each was started, on this host, by this user, and "
                     "with the same name and world",
                     ranks_text(named)));
  }

  std::vector<bool> seen_;  // by rank: somebody has listened at its address
};

}  // namespace

Meeting meet(const Membership& membership, Clock::time_point end) { return HostSeeker(membership, end).seek(); }

}  // namespace kiln::team

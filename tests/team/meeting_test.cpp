// How ranks meet: who is let in, who is refused, and who is missed.
#include "team/meeting.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "team/ranks.hpp"

using namespace kiln;
using namespace kiln::team;
using namespace kiln::test;
using std::chrono::milliseconds;

namespace {

Clock::time_point within(int ms) { return Clock::now() + milliseconds(ms); }

/// Meets, and returns each peer's process, by rank.
std::string met(const Membership& membership, int limit_ms = 15'000) {
  const Meeting meeting = meet(membership, within(limit_ms));
  std::string processes;
  for (const auto& each : meeting.peers) processes += fmt::format("{} ", each ? each->process : 0);
  return processes;
}

manifest::Digest digest_of(const std::string& name) {
  return manifest::Hasher().field("kiln-team").field(std::int64_t{2}).field(name).finish();
}

/// The address of a rank as meet() makes it.
struct Address {
  sockaddr_un place{};
  socklen_t bytes = 0;
  Address(uid_t user, const std::string& name, int rank) {
    const std::string text =
        fmt::format("kiln-team/{}/{}/{}", user, manifest::to_hex(digest_of(name)).substr(0, 32), rank);
    place.sun_family = AF_UNIX;
    text.copy(place.sun_path + 1, sizeof place.sun_path - 1);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&place); }
};

/// Connects to a rank, 10 s at most.
Descriptor knock(const std::string& name, int rank, uid_t user = geteuid()) {
  const Address address(user, name, rank);
  for (const auto end = within(10'000); Clock::now() < end; std::this_thread::sleep_for(milliseconds(2))) {
    Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(made.get(), address.get(), address.bytes) == 0) return made;
  }
  return {};
}

/// Greets as rank 1 of 2: whether rank 0 answers.
bool is_answered(const Descriptor& socket, const std::string& name) {
  struct {
    manifest::Digest team;
    std::int32_t rank = 1, world = 2;
  } greeting{digest_of(name)};
  REQUIRE(send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting);
  char answer[64];
  return recv(socket.get(), answer, sizeof answer, 0) == sizeof greeting;
}

}  // namespace

TEST_CASE("every rank meets every other, in whatever order they come, and knows their processes") {
  for (const int world : {1, 2, 5}) {
    Ranks ranks;
    for (int rank = world - 1; rank >= 0; --rank) {
      ranks.begin([&, rank] {
        std::this_thread::sleep_for(milliseconds(rank * 17 % 40));
        return met({rank, world, ranks.name});
      });
    }
    for (int rank = 0; rank < world; ++rank) {
      std::string expected;
      for (int other = 0; other < world; ++other)
        expected += fmt::format("{} ", other == rank ? 0 : ranks.process(static_cast<std::size_t>(world - 1 - other)));
      CHECK(ranks.outcome(static_cast<std::size_t>(world - 1 - rank)) == expected);
    }
  }
}

TEST_CASE("ranks that do not come in time are named by all who wait, and those who wait are not") {
  for (const int absent : {0, 1, 3}) {
    Ranks ranks;
    for (int rank = 0; rank < 4; ++rank)
      if (rank != absent) ranks.begin([&, rank] { return met({rank, 4, ranks.name}, 1'500); });
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string said = ranks.outcome(i);
      CHECK_MESSAGE(holds(said, fmt::format(": rank {} did not come in time", absent)), said);
    }
  }
}

TEST_CASE("a rank that cannot take connections says why, and waits no longer") {
  Ranks ranks;
  ranks.begin([&] {
    const int next = dup(0);  // the number that the rank's own socket gets; no other is allowed
    close(next);
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit allowed{static_cast<rlim_t>(next) + 1, before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &allowed) != 0) return std::string("setrlimit");
    try {
      return met({0, 2, ranks.name}, 60'000);
    } catch (const Error& error) {
      setrlimit(RLIMIT_NOFILE, &before);  // a sanitizer opens files to check the call that follows
      return std::string(error.what());
    }
  });
  const Descriptor knocking = knock(ranks.name, 0);
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(holds(said, "Too many open files"), said);
}

TEST_CASE("a process that cannot be seen from here and has claimed the rank is said to be one") {
  Ranks ranks;
  ranks.begin([&] {
    Ranks::say('a');
    return met({0, 2, ranks.name}, 1'500);
  });
  ranks.await(0, 'a');
  REQUIRE(knock(ranks.name, 0));
  ranks.begin([&] {
    if (unshare(CLONE_NEWPID) != 0) return std::string("cannot unshare");  // only root may
    const pid_t inside = fork();
    if (inside != 0) {
      waitpid(inside, nullptr, 0);
      return std::string();
    }
    return met({0, 2, ranks.name});  // in a namespace of its own, which does not have the other process
  });
  const std::string said = ranks.outcome(1);
  CHECK_MESSAGE((holds(said, "a process that cannot be seen from here has claimed this rank already") ||
                 said == "cannot unshare"),
                said);
}

TEST_CASE("a second process that claims a rank is refused at once, with the first one's process") {
  Ranks ranks;
  ranks.begin([&] {
    Ranks::say('a');
    return met({0, 2, ranks.name}, 1'500);
  });
  ranks.await(0, 'a');
  CHECK(knock(ranks.name, 0));
  const auto begin = Clock::now();
  ranks.begin([&] { return met({0, 2, ranks.name}); });
  const std::string said = ranks.outcome(1);
  CHECK_MESSAGE(holds(said, fmt::format("process {} has claimed this rank already", ranks.process(0))), said);
  CHECK(Clock::now() - begin < milliseconds(1'200));
  CHECK(holds(ranks.outcome(0), "rank 1 did not come"));
}

TEST_CASE("two teams of unlike names meet side by side, and of one name with unlike worlds are told so") {
  Ranks ranks;
  const std::string other = ranks.name + " other";
  for (const std::string& name : {ranks.name, other})
    for (int rank = 0; rank < 2; ++rank) ranks.begin([&, rank] { return met({rank, 2, name}); });
  for (std::size_t i = 0; i < 4; ++i) CHECK(holds(ranks.outcome(i), fmt::format("{} ", ranks.process(i ^ 1))));

  Ranks unlike;
  unlike.begin([&] { return met({0, 2, unlike.name}); });
  unlike.begin([&] { return met({1, 3, unlike.name}); });
  CHECK(holds(unlike.outcome(0), "rank 1 was given a world of 3"));
  CHECK(holds(unlike.outcome(1), "rank 0 was given a world of 2"));
}

TEST_CASE("whoever sends no greeting is ignored, whatever it sends, and the ranks meet all the same") {
  Ranks ranks;
  ranks.begin([&] { return met({0, 2, ranks.name}); });
  const Descriptor silent = knock(ranks.name, 0), speaking = knock(ranks.name, 0), long_winded = knock(ranks.name, 0);
  REQUIRE(long_winded);
  CHECK(send(speaking.get(), "GET / HTTP/1.1", 14, MSG_NOSIGNAL) == 14);
  const std::string longer(100'000, 'x');
  CHECK_FALSE(is_answered(knock(ranks.name, 0), ranks.name + " of another team"));
  CHECK(send(long_winded.get(), longer.data(), longer.size(), MSG_NOSIGNAL) == 100'000);
  char answer = 0;
  CHECK(recv(speaking.get(), &answer, 1, 0) <= 0);  // is closed, unanswered
  ranks.begin([&] { return met({1, 2, ranks.name}); });
  CHECK(ranks.outcome(0) == fmt::format("0 {} ", ranks.process(1)));
  CHECK(ranks.outcome(1) == fmt::format("{} 0 ", ranks.process(0)));
}

TEST_CASE("a greeting from another user is not answered, and the same from this user is") {
  constexpr uid_t nobody = 65534;
  for (const bool other : {true, false}) {
    if (other && geteuid() != 0) continue;  // only root becomes another user
    Ranks ranks;
    ranks.begin([&] { return met({0, 2, ranks.name}, 1'000); });
    ranks.begin([&]() -> std::string {
      if (other && setresuid(nobody, nobody, nobody) != 0) return "is no other user";
      try {
        return is_answered(knock(ranks.name, 0, other ? 0 : geteuid()), ranks.name) ? "answered" : "closed";
      } catch (...) {
        return "closed";
      }
    });
    CHECK(ranks.outcome(1) == (other ? "closed" : "answered"));
    CHECK(holds(ranks.outcome(0), other ? "rank 1 did not come" : fmt::format("0 {} ", ranks.process(1))));
  }
}

TEST_CASE("an address that another user holds is named with that user") {
  constexpr uid_t nobody = 65534;
  if (geteuid() != 0) return;  // only root becomes another user
  Ranks ranks;
  ranks.begin([&]() -> std::string {
    if (setresuid(nobody, nobody, nobody) != 0) return "is no other user";
    const Descriptor held(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const Address address(0, ranks.name, 0);
    if (bind(held.get(), address.get(), address.bytes) != 0 || listen(held.get(), 8) != 0) return "cannot listen";
    Ranks::say('l');
    std::this_thread::sleep_for(milliseconds(1'000));
    return {};
  });
  ranks.await(0, 'l');
  ranks.begin([&] { return met({1, 2, ranks.name}); });
  const std::string said = ranks.outcome(1);
  CHECK_MESSAGE(holds(said, fmt::format("user 65534 holds the address of rank 0, in process {}", ranks.process(0))),
                said);
}

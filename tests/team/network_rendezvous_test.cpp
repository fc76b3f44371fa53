// What ranks that met at an address exchange, and what each hears when another ends.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "kiln/error.hpp"
#include "team/exchange.hpp"
#include "team/network.hpp"
#include "team/rendezvous.hpp"

using namespace kiln;
using namespace kiln::team;
using namespace kiln::test;
using std::chrono::milliseconds;

namespace {

void rest(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

/// The error that `work` throws; "no error" where it throws none.
template <typename Work>
std::string failure_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("ranks at an address gather texts, the longest in many segments, and longer ones in several rounds") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(4, [&](const Membership& membership) {
    Rendezvous rendezvous(membership, ample, address);
    for (int round = 0; round < 30; ++round) {
      const auto text = [&](int rank) {
        return rank == round % 4 ? std::string()
                                 : std::string(Rendezvous::longest_bytes, static_cast<char>('a' + rank));
      };
      const std::vector<std::string> all = rendezvous.all_gather(text(membership.rank));
      for (int rank = 0; rank < 4; ++rank)
        if (all.at(static_cast<std::size_t>(rank)) != text(rank)) return fmt::format("round {}: wrong", round);
    }
    const std::string long_text(1'000'000, 'x');
    return std::string(broadcast_text(rendezvous, 2, long_text) == long_text ? "right" : "wrong");
  });
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(ranks.outcome(rank) == "right");
}

TEST_CASE("a rank that ends is named by every survivor at once, whether they wait, check or poll for it") {
  for (const char* how : {"waits", "checks", "polls"}) {
    CAPTURE(how);
    const std::string address = free_address();
    Ranks ranks;
    ranks.begin_all(3, [&](const Membership& membership) {
      Rendezvous rendezvous(membership, milliseconds(60'000), address);
      rendezvous.barrier();
      Ranks::say('m');
      if (membership.rank == 1) rest(60'000);
      if (how == std::string("polls")) {
        const auto watched = rendezvous.watched();
        std::vector<pollfd> ends;
        for (const auto& each : watched) ends.push_back({each.descriptor.get(), each.events, 0});
        if (poll(ends.data(), ends.size(), 10'000) < 1) return std::string("nothing polled");
      }
      for (;; rest(5)) {
        const std::string said =
            failure_of([&] { how == std::string("checks") ? rendezvous.check() : rendezvous.barrier(); });
        if (said != "no error") return said;
      }
    });
    for (std::size_t rank = 0; rank < 3; ++rank) ranks.await(rank, 'm');
    const auto begun = Clock::now();
    ranks.kill(1);
    for (const std::size_t rank : {0U, 2U}) {
      const std::string said = ranks.outcome(rank);
      CHECK_MESSAGE(holds(said, "rank 1 has ended or left the team"), said);
    }
    CHECK(Clock::now() - begun < milliseconds(5'000));
  }
}

TEST_CASE("a rank that leaves is heard though a forked child holds its connections") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const Membership& membership) {
    pid_t child = -1;
    std::string said;
    {
      Rendezvous rendezvous(membership, milliseconds(60'000), address);
      rendezvous.barrier();
      if (membership.rank == 1 && (child = fork()) == 0) {
        rest(20'000);
        _exit(0);
      }
      if (membership.rank == 0) said = failure_of([&] { rendezvous.barrier(); });
    }
    if (child > 0) {
      rest(1'000);
      ::kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    return said;
  });
  const auto begun = Clock::now();
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(holds(said, "rank 1 has ended or left the team"), said);
  CHECK(Clock::now() - begun < milliseconds(10'000));
  CHECK(ranks.outcome(1).empty());
}

TEST_CASE("ranks at an address that call unlike collectives, come late or ask for descriptors are told so") {
  const std::string unlike = free_address(), late = free_address(), exchange = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const Membership& own) {
    Rendezvous first({own.rank, 2, own.name + "unlike"}, ample, unlike);
    std::string said = failure_of([&] { own.rank == 0 ? first.barrier() : void(first.all_gather("x")); });
    Rendezvous second({own.rank, 2, own.name + "late"}, milliseconds(own.rank == 0 ? 500 : 60'000), late);
    if (own.rank == 1) rest(1'500);
    said += "; " + failure_of([&] {
              second.barrier();  // who comes last may learn of the failure in the next call
              second.barrier();
            });
    Rendezvous third({own.rank, 2, own.name + "exchange"}, ample, exchange);
    return said + "; " + failure_of([&] { third.exchange(0); });
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "all ranks call the same in the same order"), said);
    CHECK_MESSAGE(holds(said, "rank 1 did not come to barrier (collective 1) within 500 ms"), said);
    CHECK_MESSAGE(holds(said, "a file descriptor cannot be sent to another host"), said);
  }
}

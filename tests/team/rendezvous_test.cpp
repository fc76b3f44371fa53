// What ranks exchange once they have met, and what each hears when another ends.
#include "team/rendezvous.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <array>
#include <thread>

#include "kiln/error.hpp"
#include "team/ranks.hpp"

using namespace kiln;
using namespace kiln::team;
using namespace kiln::test;
using std::chrono::milliseconds;

namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

/// The error that `work` throws; "no error" where it throws none.
template <typename Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Descriptor file_with(const std::string& text) {
  Descriptor file(memfd_create("team_test", MFD_CLOEXEC));
  if (pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw Error(ErrorKind::io, "memfd");
  return file;
}

std::string text_in(const Descriptor& file) {
  std::array<char, 64> text{};
  const ssize_t count = pread(file.get(), text.data(), text.size(), 0);
  return {text.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
}

}  // namespace

TEST_CASE("all_gather gives every rank what each gave, empty texts and the longest too, call after call") {
  Ranks ranks;
  ranks.begin_all(4, [](const Membership& membership) {
    Rendezvous rendezvous(membership, ample);
    for (int round = 0; round < 100; ++round) {
      const auto text = [&](int rank) { return rank == round % 4 ? std::string() : fmt::format("{}/{}", round, rank); };
      const std::vector<std::string> all = rendezvous.all_gather(text(membership.rank));
      for (int rank = 0; rank < 4; ++rank)
        if (all.at(static_cast<std::size_t>(rank)) != text(rank)) return fmt::format("round {}: wrong", round);
    }
    const auto longest =
        rendezvous.all_gather(std::string(Rendezvous::longest_bytes, static_cast<char>('a' + membership.rank)));
    if (longest[2] != std::string(Rendezvous::longest_bytes, 'c')) return std::string("the longest is wrong");
    return error_of([&] { rendezvous.all_gather(std::string(Rendezvous::longest_bytes + 1, 'x')); });
  });
  for (std::size_t rank = 0; rank < 4; ++rank)
    CHECK(holds(ranks.outcome(rank), "all_gather of 65537 bytes was asked for; 65536 at most"));
}

TEST_CASE("no rank leaves a barrier before the last has come") {
  const Descriptor file = file_with("0");
  Ranks ranks;
  ranks.begin_all(3, [&](const Membership& membership) {
    Rendezvous rendezvous(membership, ample);
    if (membership.rank == 1) {
      sleep_ms(200);
      if (pwrite(file.get(), "1", 1, 0) != 1) return std::string("cannot write");
    }
    rendezvous.barrier();
    return text_in(file);
  });
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(ranks.outcome(rank) == "1");
}

TEST_CASE("each rank gets a descriptor of every other's file, and can write to it") {
  Ranks ranks;
  ranks.begin_all(3, [](const Membership& membership) {
    Rendezvous rendezvous(membership, ample);
    const Descriptor own = file_with(fmt::format("file {}", membership.rank));
    const std::vector<Descriptor> files = rendezvous.exchange(own.get());
    std::string seen;
    for (const Descriptor& file : files) seen += file ? text_in(file) + "; " : "own; ";
    rendezvous.barrier();
    const char mark = static_cast<char>('A' + membership.rank);
    const auto next = static_cast<std::size_t>((membership.rank + 1) % 3);
    if (pwrite(files[next].get(), &mark, 1, 0) != 1) return std::string("cannot write");
    rendezvous.barrier();
    return seen + text_in(own);
  });
  CHECK(ranks.outcome(0) == "own; file 1; file 2; Cile 0");
  CHECK(ranks.outcome(1) == "file 0; own; file 2; Aile 1");
  CHECK(ranks.outcome(2) == "file 0; file 1; own; Bile 2");
}

TEST_CASE("a rank that gives no descriptor is named") {
  Ranks ranks;
  ranks.begin_all(2, [](const Membership& membership) {
    Rendezvous rendezvous(membership, ample);
    const Descriptor own = file_with("x");
    return error_of([&] { rendezvous.exchange(membership.rank == 1 ? -1 : own.get()); });
  });
  CHECK(holds(ranks.outcome(0), "rank 1 sent no descriptor"));
}

TEST_CASE("a rank that cannot send what it was given says so to all, and nobody waits") {
  Ranks ranks;
  ranks.begin_all(3, [](const Membership& membership) {
    Rendezvous rendezvous(membership, milliseconds(60'000));
    const Descriptor own = file_with("x");
    return error_of([&] { rendezvous.exchange(membership.rank == 1 ? 1'000'000 : own.get()); });
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "rank 1 failed in exchange (collective 1): sending to a rank: sendmsg: Bad file"), said);
  }
}

TEST_CASE("with the longest time-out that there is, ranks wait for one that comes late") {
  Ranks ranks;
  ranks.begin_all(2, [](const Membership& membership) {
    if (membership.rank == 1) sleep_ms(100);
    Rendezvous rendezvous(membership, milliseconds::max());
    if (membership.rank == 0) sleep_ms(100);
    rendezvous.barrier();
    return std::string("done");
  });
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(ranks.outcome(rank) == "done");
}

TEST_CASE("a rank that is killed is named by every survivor at once, whether they wait or check") {
  for (const bool waits : {true, false}) {
    Ranks ranks;
    ranks.begin_all(3, [&](const Membership& membership) {
      Rendezvous rendezvous(membership, milliseconds(60'000));
      rendezvous.barrier();
      Ranks::say('m');
      if (membership.rank == 1) sleep_ms(60'000);
      for (;; sleep_ms(5)) {
        const std::string said = error_of([&] { waits ? rendezvous.barrier() : rendezvous.check(); });
        if (waits || said != "no error") return said;
      }
    });
    for (std::size_t rank = 0; rank < 3; ++rank) ranks.await(rank, 'm');
    const auto begin = Clock::now();
    ranks.kill(1);
    for (const std::size_t survivor : {std::size_t{0}, std::size_t{2}}) {
      const std::string said = ranks.outcome(survivor);
      CHECK_MESSAGE(holds(said, fmt::format("rank 1 (process {}) has ended or left the team", ranks.process(1))), said);
    }
    CHECK(Clock::now() - begin < milliseconds(5'000));
  }
}

TEST_CASE("a rank whose children keep its sockets open is known to have ended all the same") {
  Ranks ranks;
  ranks.begin_all(2, [](const Membership& membership) -> std::string {
    Rendezvous rendezvous(membership, milliseconds(10'000));
    rendezvous.barrier();
    if (membership.rank == 1) {
      const pid_t child = fork();
      if (child == 0) {
        sleep_ms(3'000);
        _exit(0);
      }
      Ranks::say('f');
      sleep_ms(60'000);
    }
    const auto begin = Clock::now();
    const std::string said = error_of([&] { rendezvous.barrier(); });
    return Clock::now() - begin < milliseconds(2'500) ? said : "late: " + said;
  });
  ranks.await(1, 'f');
  sleep_ms(100);
  ranks.kill(1);
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(said.starts_with("team '" + ranks.name + "': rank 1 (process"), said);
}

TEST_CASE("a rank that comes too late is named on all ranks, also on those that hear of it from another") {
  Ranks ranks;
  ranks.begin_all(3, [](const Membership& membership) {
    Rendezvous rendezvous(membership, milliseconds(1'500));
    if (membership.rank == 2) {
      sleep_ms(4'000);
      return error_of([&] {
        rendezvous.barrier();  // finds what the others sent for it before they gave up
        rendezvous.barrier();
      });
    }
    if (membership.rank == 1) sleep_ms(400);  // so that rank 0 gives up first
    const std::string first = error_of([&] { rendezvous.barrier(); });
    const std::string again = error_of([&] { rendezvous.all_gather("x"); });
    return first == again ? first : "unlike: " + first + again;
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "rank 2 did not come to barrier (collective 1) within 1500 ms"), said);
  }
}

TEST_CASE("ranks that call unlike collectives are told which") {
  Ranks ranks;
  ranks.begin_all(2, [](const Membership& membership) {
    Rendezvous rendezvous(membership, ample);
    rendezvous.barrier();
    return error_of([&] {
      if (membership.rank == 0)
        rendezvous.barrier();
      else
        rendezvous.all_gather("x");
    });
  });
  const std::string here = ranks.outcome(0), there = ranks.outcome(1);
  const bool by_0 = holds(here, "rank 1 called all_gather (collective 2) where rank 0 called barrier (collective 2)");
  const bool by_1 = holds(here, "rank 0 called barrier (collective 2) where rank 1 called all_gather (collective 2)");
  CHECK_MESSAGE((by_0 || by_1), here);
  CHECK_MESSAGE(holds(there, "all ranks call the same in the same order"), there);
}

TEST_CASE(
    "a rank that leaves after the last collective harms none that are still in it, and its name can be used again") {
  Ranks ranks;
  ranks.begin_all(3, [](const Membership& membership) {
    for (int team = 0; team < 30; ++team) {
      Rendezvous rendezvous(membership, ample);
      rendezvous.barrier();
    }
    return std::string("done");
  });
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(ranks.outcome(rank) == "done");
}

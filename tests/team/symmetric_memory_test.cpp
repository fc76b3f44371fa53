// Memory that ranks share through the fake driver, whose exported memory really passes between processes.
#include <doctest/doctest.h>

#include "fake_cuda/fixture.hpp"
#include "kiln/error.hpp"
#include "team/protocol.hpp"
#include "team/ranks.hpp"
#include "team/shared_words.hpp"

using namespace kiln;
using namespace kiln::test;
using fake_cuda_tests::control;
using fake_cuda_tests::query;
using std::chrono::milliseconds;

namespace {

constexpr std::int64_t bytes = 3'000'000;  // no multiple of the granularity

Team made(const team::Membership& membership, std::int64_t of_bytes, milliseconds timeout) {
  return Team(membership.rank, membership.world, membership.name, {0, of_bytes, timeout});
}

}  // namespace

TEST_CASE("memory is zero at first, and what a rank writes into another's memory is there for its owner") {
  Ranks ranks;
  ranks.begin_all(3, [](const team::Membership& membership) {
    const Device device;
    Team team = made(membership, bytes, ample);
    const CUdeviceptr own = address_of(team, team.rank());
    std::vector<char> all(static_cast<std::size_t>(bytes), 'x');
    cuda::check(cuda::Driver::get().cuMemcpyDtoH_v2(all.data(), own, all.size()), "reading");
    if (all != std::vector<char>(all.size(), '\0')) return std::string("is not zero");
    barrier(team);
    for (int rank = 0; rank < 3; ++rank)
      write_word(address_of(team, rank) + static_cast<CUdeviceptr>(bytes - 16 + 4 * team.rank()), 100 + team.rank());
    barrier(team);
    std::string found;
    for (int i = 0; i < 3; ++i)
      found += fmt::format("{} ", word_at(own + static_cast<CUdeviceptr>(bytes - 16 + 4 * i)));
    team.close();
    return fmt::format("{}of {}, {} left", found, team.bytes(), query("mappings"));
  });
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(ranks.outcome(rank) == "100 101 102 of 3000000, 0 left");
}

TEST_CASE("packets lie behind a rank's halves, zero at first and after a reset, which leaves the halves alone") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& membership) {
    const Device device;
    Team team = made(membership, bytes, ample);
    const auto last = static_cast<CUdeviceptr>(team::packets_offset(bytes) + 2 * team::packet_bytes - 4);
    const auto in_half = static_cast<CUdeviceptr>(team::packets_offset(bytes) - 4);
    const CUdeviceptr own = address_of(team, team.rank()), peer = address_of(team, 1 - team.rank());
    std::string found = fmt::format("{} ", word_at(own + last));
    barrier(team);
    for (const CUdeviceptr offset : {last, in_half}) write_word(peer + offset, 7);
    barrier(team);
    found += fmt::format("{} {} ", word_at(own + last), word_at(own + in_half));
    team.reset();
    return found + fmt::format("{} {}", word_at(own + last), word_at(own + in_half));
  });
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(ranks.outcome(rank) == "0 7 7 0 7");
}

TEST_CASE("the memory of a rank that was killed can still be written and read by the others") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& membership) -> std::string {
    const Device device;
    Team team = made(membership, bytes, milliseconds(60'000));
    if (team.rank() == 1) {
      write_word(address_of(team, 1), 5);
      barrier(team);
      Ranks::say('w');
      pause();
    }
    barrier(team);
    try {
      barrier(team);
    } catch (const Error& error) {
      write_word(address_of(team, 1) + 4, 6);
      return fmt::format("{} {} {}", word_at(address_of(team, 1)), word_at(address_of(team, 1) + 4), error.what());
    }
    return "no error";
  });
  ranks.await(1, 'w');
  ranks.kill(1);
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(holds(said, "5 6 team"), said);
  CHECK(holds(said, "rank 1 (process"));
}

TEST_CASE("what fails on one rank fails on all with its rank, in no time, and leaves nothing behind") {
  struct Case {
    const char* fault;
    ErrorKind kind;
    const char* said;
  };
  for (const Case& each :
       {Case{"memory 1000000", ErrorKind::out_of_memory, "rank 1 failed at allocating symmetric memory: cuMemCreate"},
        Case{"fail cuMemExportToShareableHandle 801", ErrorKind::driver_failed, "rank 1 failed at allocating"},
        Case{"fail cuMemSetAccess 217 at 2", ErrorKind::driver_failed,
             "rank 1 failed at mapping the ranks' memory: cuMemSetAccess"}}) {
    Ranks ranks;
    ranks.begin_all(3, [&](const team::Membership& membership) {
      const Device device;
      if (membership.rank == 1) control(each.fault);
      const auto begin = team::Clock::now();
      try {
        const Team team = made(membership, bytes, milliseconds(60'000));
      } catch (const Error& error) {
        const bool soon = team::Clock::now() - begin < milliseconds(10'000);
        return fmt::format("{} {} {} {}", to_string(error.kind()), soon, query("mappings"), error.what());
      }
      return std::string("no error");
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const std::string said = ranks.outcome(rank);
      CHECK_MESSAGE(holds(said, fmt::format("{} true 0 team", to_string(each.kind))), said);
      CHECK_MESSAGE(holds(said, each.said), said);
    }
  }
}

TEST_CASE("ranks whose devices have memory in unlike units share all the same") {
  Ranks ranks;
  ranks.begin_all(3, [](const team::Membership& membership) {
    const Device device;
    if (membership.rank == 1) control("granularity 8388608");
    Team team = made(membership, bytes, ample);
    const std::string found = exchanged_words(team, 7 + team.rank());
    team.close();
    return fmt::format("{}{} left", found, query("mappings"));
  });
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(ranks.outcome(rank) == "7 8 9 0 left");
}

TEST_CASE("all ranks hear the same where some ask for other sizes and one for nothing") {
  Ranks ranks;
  ranks.begin_all(4, [&](const team::Membership& membership) {
    const Device device;
    const std::int64_t asked[] = {bytes, bytes, bytes + 1, 0};
    const Team team = made(membership, asked[membership.rank], ample);
    return std::string("no error");
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "rank 2 asks for 3000001 bytes of symmetric memory, rank 0 for 3000000"), said);
  }
}

TEST_CASE("ranks that ask for unlike sizes, or for nothing, are told so") {
  for (const bool nothing : {false, true}) {
    Ranks ranks;
    ranks.begin_all(2, [&](const team::Membership& membership) {
      const Device device;
      const Team team = made(membership, nothing ? 0 : bytes + membership.rank, ample);
      return std::string("no error");
    });
    for (std::size_t rank = 0; rank < 2; ++rank)
      CHECK(holds(ranks.outcome(rank), nothing
                                           ? "rank 0 asks for 0 bytes"
                                           : "rank 1 asks for 3000001 bytes of symmetric memory, rank 0 for 3000000"));
  }
}

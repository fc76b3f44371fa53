// A team of an NCCL communicator's ranks: what they agree on through it, and what they refuse.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <thread>

#include "fake_cuda/fixture.hpp"
#include "fake_nccl/control.hpp"
#include "kiln/error.hpp"
#include "kiln/team_nccl.hpp"
#include "team/introduction.hpp"
#include "team/network.hpp"
#include "team/ranks.hpp"
#include "team/shared_words.hpp"

using namespace kiln;
using namespace kiln::test;
using fake_cuda_tests::control;
using fake_cuda_tests::query;
using std::chrono::milliseconds;

namespace {

/// What the ranks of a communicator share, made before they are.
class Board {
 public:
  Board() {
    void* memory = mmap(nullptr, sizeof(FakeNcclBoard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    board_ = new (memory) FakeNcclBoard;
  }
  ~Board() { munmap(board_, sizeof(FakeNcclBoard)); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  /// In the rank's own process.
  [[nodiscard]] ncclComm_t communicator(int rank, int world, int device = 0) const {
    return fake<decltype(&fake_nccl_communicator)>("fake_nccl_communicator")(board_, rank, world, device);
  }
  template <typename Function>
  static Function fake(const char* name) {
    void* library = dlopen(std::getenv("KILN_NCCL_LIBRARY"), RTLD_NOW);
    REQUIRE(library != nullptr);
    return reinterpret_cast<Function>(dlsym(library, name));
  }

 private:
  FakeNcclBoard* board_;
};

/// The error of `work` with its kind; what `work` returns where it throws none.
template <typename Work>
std::string told(Work work) {
  try {
    return work();
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.kind()), error.what());
  }
}

TeamOptions options(milliseconds timeout = ample) { return {{}, 4096, timeout}; }

std::string introduced(ncclComm_t communicator, const team::Host& host, const TeamOptions& chosen = options()) {
  const team::Introduced found = team::introduce(cuda::Nccl::get(), communicator, host, chosen);
  return fmt::format("{} of {} on {}", found.membership.rank, found.membership.world, found.device);
}

}  // namespace

TEST_CASE("the ranks of an NCCL communicator are a team, under a name that each of their teams has alone") {
  const Board board;
  Ranks ranks;
  ranks.begin_all(3, [&](const team::Membership& membership) {
    const Device device;
    ncclComm_t communicator = board.communicator(membership.rank, 3);
    std::this_thread::sleep_for(milliseconds(membership.rank * 30));
    const std::shared_ptr<Team> first = team_from_nccl(communicator, options());
    const std::shared_ptr<Team> second = team_from_nccl(communicator, options());
    const std::string words = exchanged_words(*first, 10 + membership.rank) + exchanged_words(*second, 20);
    return fmt::format("{} of {}: {}{} {}", first->rank(), second->world(), words,
                       first->name() != second->name() ? "unlike" : "like", query("allocations"));
  });
  for (std::size_t rank = 0; rank < 3; ++rank)
    CHECK(ranks.outcome(rank) == fmt::format("{} of 3: 10 11 12 20 20 20 unlike 0", rank));
}

TEST_CASE("a stream that NCCL's kernel has not left yet is waited for") {
  const Board board;
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& membership) {
    cuda::Driver::get();
    control("fail cuStreamQuery CUDA_ERROR_NOT_READY");
    const std::string said = introduced(board.communicator(membership.rank, 2), team::this_host());
    return fmt::format("{}, asked {} times", said, query("calls cuStreamQuery"));
  });
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(ranks.outcome(rank) == fmt::format("{} of 2 on 0, asked 2 times", rank));
}

TEST_CASE("a communicator across hosts is refused on every rank, with a rank of each host") {
  const Board board;
  Ranks ranks;
  ranks.begin_all(3, [&](const team::Membership& membership) {
    const team::Host host = membership.rank < 2 ? team::Host{"node-1", "aaaa"} : team::Host{"node-2", "bbbb"};
    return told([&] { return introduced(board.communicator(membership.rank, 3), host); });
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(said.starts_with("bad_input: a team was asked for of an NCCL communicator of 3 ranks on several"),
                  said);
    CHECK_MESSAGE(holds(said, "rank 0 is on node-1, rank 2 on node-2. Give TeamOptions::address"), said);
  }
}

TEST_CASE("a communicator across hosts is a team at an address") {
  const Board board, other;
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& membership) {
    TeamOptions chosen = options();
    chosen.address = address;
    const team::Host host{fmt::format("node-{}", membership.rank), membership.rank == 0 ? "aaaa" : "bbbb"};
    const std::string said = told([&] { return introduced(board.communicator(membership.rank, 2), host, chosen); });
    const std::shared_ptr<Team> team = team_from_nccl(other.communicator(membership.rank, 2), chosen);
    team->close();
    return said + fmt::format("; {} of {}, {} bytes", team->rank(), team->world(), team->bytes());
  });
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(ranks.outcome(rank) == fmt::format("{} of 2 on 0; {} of 2, 0 bytes", rank, rank));
}

TEST_CASE("a host is known by its boot, and by its name where a process cannot read the boot") {
  using team::is_same;
  CHECK(is_same({"container-1", "aaaa"}, {"container-2", "aaaa"}));
  CHECK_FALSE(is_same({"node", "aaaa"}, {"node", "bbbb"}));
  CHECK(is_same({"node", ""}, {"node", "bbbb"}));
  CHECK_FALSE(is_same({"node-1", "aaaa"}, {"node-2", ""}));
  const team::Host here = team::this_host();
  CHECK_FALSE(here.name.empty());
  CHECK(is_same(here, team::this_host()));
}

TEST_CASE("a device that is not the communicator's is refused on every rank, and the communicator's is taken") {
  const Board board, other;
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& membership) {
    cuda::Driver::get();
    control("devices 2");
    TeamOptions chosen = options();
    const std::string without = introduced(board.communicator(membership.rank, 2, 1), team::this_host(), chosen);
    chosen.device = membership.rank == 1 ? 0 : 1;
    return without + "; " +
           told([&] { return introduced(other.communicator(membership.rank, 2, 1), team::this_host(), chosen); });
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(said.starts_with(fmt::format("{} of 2 on 1; bad_input", rank)), said);
    CHECK_MESSAGE(holds(said, "rank 1 gave TeamOptions::device 0, and its communicator is on device 1"), said);
  }
}

TEST_CASE("a rank whose communicator's other ranks do not come waits for the time-out alone") {
  const Board board;
  Ranks ranks;
  ranks.begin([&] {
    cuda::Driver::get();
    const std::string said =
        told([&] { return introduced(board.communicator(0, 2), team::this_host(), options(milliseconds(300))); });
    return fmt::format("{} {} allocations stay", said, query("allocations"));  // NCCL may still write to them
  });
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(
      said.starts_with("team_failed: rank 0 of an NCCL communicator asked for a team of its 2 ranks; not all of them "
                       "came within 300 ms"),
      said);
  CHECK_MESSAGE(said.ends_with(" 2 allocations stay"), said);
}

TEST_CASE("a communicator that has failed and one that is none are refused, with what NCCL says") {
  const Board board;
  Ranks ranks;
  ranks.begin([&] {
    ncclComm_t communicator = board.communicator(0, 1);
    Board::fake<decltype(&fake_nccl_fail)>("fake_nccl_fail")(communicator, ncclSystemError);
    return told([&] { return introduced(communicator, team::this_host()); });
  });
  ranks.begin([&] { return told([] { return introduced(nullptr, team::this_host()); }); });
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(
      holds(said,
            "team_failed: a team was asked for of an NCCL communicator, and ncclAllGather gave 'unhandled system"),
      said);
  CHECK(ranks.outcome(1) == "bad_input: a team was asked for of a null NCCL communicator");
}

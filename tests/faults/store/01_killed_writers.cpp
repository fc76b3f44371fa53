#include <fcntl.h>
#include <signal.h>

#include <array>
#include <random>
#include <utility>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

constexpr int writers = 8;
constexpr int kills = 400;
constexpr std::size_t large_cubin_bytes = 9000;  // several pages, so that a commit is many writes

/// What a writer reports once a put has returned; small enough for a pipe to take it whole.
struct Commit {
  int writer = 0, number = 0;
};

std::string commit_name(const Commit& commit) {
  return std::to_string(commit.writer) + "/" + std::to_string(commit.number);
}

pid_t start_writer(const std::filesystem::path& path, int writer, int pipe) {
  return in_child([&] {
    const auto file = File::open(path, Access::read_write);
    for (Commit commit{writer, 0};; ++commit.number) {
      const auto name = commit_name(commit);
      const auto cubin = sample_cubin(name, large_cubin_bytes);
      file->put(sample_record(name, commit.number), &cubin);
      if (write(pipe, &commit, sizeof commit) != sizeof commit) return false;
    }
  });
}

void drain(int pipe, std::vector<Commit>& commits) {
  Commit commit;
  while (read(pipe, &commit, sizeof commit) == sizeof commit) commits.push_back(commit);
}

TEST_CASE("fault 01: of eight writers that are killed at any moment every commit stays, and nothing is torn") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  int pipe[2];
  REQUIRE(pipe2(pipe, O_CLOEXEC) == 0);
  fcntl(pipe[0], F_SETFL, O_NONBLOCK);

  std::mt19937 random(1);
  std::vector<Commit> commits;
  std::array<pid_t, writers> children{};
  int started = 0;
  for (pid_t& child : children) child = start_writer(path, started++, pipe[1]);
  const auto kill_one = [&](pid_t& child) {
    kill(child, SIGKILL);
    CHECK(exit_status(child) == 128 + SIGKILL);
  };
  for (int killed = 0; killed < kills - writers; ++killed) {
    usleep(std::uniform_int_distribution<useconds_t>(0, 20000)(random));
    pid_t& child = children[std::uniform_int_distribution<std::size_t>(0, writers - 1)(random)];
    kill_one(child);
    drain(pipe[0], commits);
    child = start_writer(path, started++, pipe[1]);
  }
  for (pid_t& child : children) kill_one(child);
  drain(pipe[0], commits);
  close(pipe[0]);
  close(pipe[1]);

  const auto file = File::open(path, Access::read_write);
  const auto stats = file->stats();
  CHECK(quick_check(path) == "ok\n");
  CHECK(stats.records >= static_cast<std::int64_t>(commits.size()));
  CHECK(stats.records <= static_cast<std::int64_t>(commits.size()) + kills);  // those killed before they could report
  CHECK(stats.cubins == stats.records);
  CHECK(stats.candidates == 2 * stats.records);
  for (const Commit& commit : commits) {
    const auto name = commit_name(commit);
    const auto record = file->find_record(name, true);
    const auto cubin = file->find_cubin(digest_named(name));
    CAPTURE(name);
    REQUIRE(record);
    REQUIRE(cubin);
    CHECK(same(*record, sample_record(name, commit.number)));
    CHECK(same(*cubin, sample_cubin(name, large_cubin_bytes)));
  }
  CHECK(file->records({}, true).size() == static_cast<std::size_t>(stats.records));
  CHECK(file->counters().quarantined == 0);
  CHECK(commits.size() > 1000);
  faults::tally(1, kills, "writers killed");
  faults::tally(1, static_cast<std::int64_t>(commits.size()), "commits among the kills");
}

}  // namespace
}  // namespace kiln::store

#include <array>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

constexpr int racers = 8;
constexpr int rounds = 10;

/// What a process that wants a key ended with; its exit status.
enum Role : int { tuned = 10, waited = 11, lost = 12 };

/// Holds the lease, tunes and publishes; or looks for the answer until a bound, as the miss path does.
Role want(File& file, const std::string& key) {
  if (file.find_record(key)) return waited;
  if (file.acquire_lease(key, std::to_string(getpid()), 60)) {
    const bool answered = file.find_record(key).has_value();  // between the look-up and the lease
    if (!answered) {
      usleep(30 * 1000);
      file.put(sample_record(key), nullptr);
    }
    file.release_lease(key, std::to_string(getpid()));
    return answered ? waited : tuned;
  }
  for (int tries = 0; tries < 1000; ++tries) {
    if (file.find_record(key)) return waited;
    usleep(5 * 1000);
  }
  return lost;
}

TEST_CASE("fault 13: of eight processes that want one key at once one tunes, and the others have its answer") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", 0);
  for (int round = 0; round < rounds; ++round) {
    const auto key = sample_key(round);
    int barrier[2];
    REQUIRE(pipe(barrier) == 0);
    std::array<pid_t, racers> children{};
    for (pid_t& child : children)
      child = in_child([&]() -> bool {
        const auto file = File::open(path, Access::read_write);
        close(barrier[1]);
        char go = 0;
        [[maybe_unused]] const auto ended = read(barrier[0], &go, 1);  // returns when the parent closes its end
        _exit(want(*file, key));
      });
    close(barrier[0]);
    usleep(30 * 1000);
    close(barrier[1]);
    int tuners = 0, waiters = 0;
    for (const pid_t child : children) {
      const int status = exit_status(child);
      tuners += status == tuned ? 1 : 0;
      waiters += status == waited ? 1 : 0;
    }
    CAPTURE(round);
    CHECK(tuners == 1);
    CHECK(waiters == racers - 1);
  }
  CHECK(File::open(path, Access::read_only)->stats().leases == 0);
  faults::tally(13, rounds, "keys that eight processes wanted at once");
}

}  // namespace
}  // namespace kiln::store

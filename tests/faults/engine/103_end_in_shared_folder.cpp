// A machine that dies inside an operation on a shared folder: before each call on files that the operation makes, and in
// the middle of each write.
#include <sys/wait.h>

#include <random>

#include "e2e/shared.hpp"
#include "faults/engine/shared_folder.hpp"

namespace kiln::faults {
namespace {

/// Ends the process at the call of this number.
class Ends final : public FolderWatcher {
 public:
  Ends(int at, bool tears) : left_(at), tears_(tears) {}
  int before(const char*, const char*) override {
    if (left_-- == 0) raise(SIGKILL);
    return 0;
  }
  [[nodiscard]] bool tears() const override { return tears_ && left_ == 0; }

 private:
  int left_;
  bool tears_;
};

/// Whether a process that does this was killed before it was done.
bool is_killed(const FolderOperation& operation, const SharedBucket& bucket, int at, bool tears) {
  const pid_t child = fork();
  if (child == 0) {
    Ends ends(at, tears);
    folder_watcher = &ends;
    remote::Folder folder(bucket.path(), watched_calls());
    try {
      operation.run(folder, bucket);
    } catch (const store::RemoteFailure&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (!WIFSIGNALED(status)) CHECK(WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

/// Of a value that holds; 0 without one.
std::int64_t samples_of(const SharedBucket& bucket, const std::optional<std::string>& value) {
  if (!value) return 0;
  const auto opened = remote::open_row(bucket.place(), *value, {});
  REQUIRE(opened.row);
  return opened.row->record.choices[0].samples;
}

}  // namespace

TEST_CASE(
    "fault 103: a process that is killed at any call of an operation leaves whole values, and no claim for good") {
  const SharedBucket bucket;
  int killed = 0;
  for (const FolderOperation& operation : folder_operations())
    for (const bool tears : {false, true})
      for (int at = 0;; ++at) {
        CAPTURE(at);
        prepare(operation, bucket);
        if (!is_killed(operation, bucket, at, tears)) break;
        check_sound(operation, bucket);
        ++killed;
      }
  tally(103, killed, "processes killed inside an operation");
}

TEST_CASE("fault 103: a folder that many processes fill and are killed in holds whole values, the better ones") {
  const SharedBucket bucket;
  const int rounds = chosen_count("KILN_TEST_STOPS", 40);
  remote::Folder folder(bucket.path());
  std::minstd_rand random(103);
  std::int64_t best = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<pid_t> writers;
    for (int writer = 0; writer < 2; ++writer) {
      const auto at = static_cast<int>(random() % 60);
      writers.push_back(fork());
      if (writers.back() != 0) continue;
      Ends ends(at, at % 2 == 0);
      folder_watcher = &ends;
      remote::Folder own(bucket.path(), watched_calls());
      for (;;) {
        try {
          own.claim(bucket.place(), std::to_string(getpid()), claim_term, in_time());
          const auto present = own.get(bucket.place(), in_time());
          own.put(bucket.place(), bucket.value(samples_of(bucket, present) + 1), present, in_time());
          own.release(bucket.place(), std::to_string(getpid()), in_time());
        } catch (const store::RemoteFailure&) {
          _exit(1);
        }
      }
    }
    for (const pid_t writer : writers) {
      int status = 0;
      REQUIRE(waitpid(writer, &status, 0) == writer);
      CHECK(WIFSIGNALED(status));
    }
    const std::int64_t samples = samples_of(bucket, folder.get(bucket.place(), in_time()));
    CHECK(samples >= best);
    best = samples;
    bucket.age(2 * claim_term);
  }
  CHECK(best > 0);
  for (const auto& each : fs::recursive_directory_iterator(bucket.path())) CHECK(each.path().extension() != ".broken");
  kiln::testing::KeptRow("kills").with("back_end", "folder").with("writers", 2 * rounds).with("values", best);
  if (std::getenv("KILN_TEST_STOPS") == nullptr) tally(103, 2 * rounds, "writers killed beside others");
}

}  // namespace kiln::faults

// Launches of an engine whose shared folder fails or stops at any call, while another machine dies inside its own work on
// the same bucket.
#include <sys/wait.h>

#include <array>
#include <random>

#include "e2e/gate.hpp"
#include "e2e/shared.hpp"
#include "engine/shared_answers.hpp"
#include "engine/state.hpp"
#include "faults/engine/scene.hpp"
#include "faults/engine/shared_folder.hpp"
#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"
#include "plan/hit_path.hpp"

namespace kiln::faults {
namespace {

using Clock = std::chrono::steady_clock;

/// From some call on fails, for some calls, or stops for a while, or hides names.
class Stops final : public FolderWatcher {
 public:
  explicit Stops(std::minstd_rand& random)
      : at_(static_cast<int>(random() % 30)),
        times_(1 + static_cast<int>(random() % 6)),
        error_(errors[random() % errors.size()]),
        pause_(std::chrono::milliseconds(random() % 3 == 0 ? random() % 900 : 0)),
        hidden_(random() % 4 == 0 ? 3 : 0) {}
  int before(const char*, const char*) override {
    const int call = calls_++;
    if (call == at_ && pause_.count() > 0) std::this_thread::sleep_for(pause_);
    return pause_.count() == 0 && call >= at_ && call < at_ + times_ ? error_ : 0;
  }
  bool hides(const char* path) override { return std::string_view(path).ends_with(".row") && hidden_-- > 0; }

 private:
  static constexpr std::array errors{ESTALE, EIO, EDQUOT, ENOSPC, EACCES, EROFS, ETIMEDOUT, ENOENT};
  int at_, times_, error_;
  std::chrono::milliseconds pause_;
  int hidden_, calls_ = 0;
};

/// Does what a machine does with a bucket until it is killed at a random call.
class DyingMachine final : public FolderWatcher {
 public:
  DyingMachine(const fs::path& folder, const store::RemotePlace& place, const std::string& value, int at) : left_(at) {
    child_ = fork();
    if (child_ != 0) return;
    folder_watcher = this;
    remote::Folder own(folder, watched_calls());
    for (;;) {
      try {
        own.claim(place, "dying", std::chrono::seconds(1), in_time());
        own.put(place, value, own.get(place, in_time()), in_time());
        own.release(place, "dying", in_time());
      } catch (const store::RemoteFailure&) {
        _exit(1);
      }
    }
  }
  ~DyingMachine() override {
    int status = 0;
    waitpid(child_, &status, 0);
    CHECK(WIFSIGNALED(status));
  }
  DyingMachine(const DyingMachine&) = delete;
  DyingMachine& operator=(const DyingMachine&) = delete;
  int before(const char*, const char*) override {
    if (left_-- == 0) raise(SIGKILL);
    return 0;
  }

 private:
  int left_;
  pid_t child_ = -1;
};

}  // namespace

TEST_CASE("fault 105: no launch fails, waits past its limits or is wrong, whatever stops in the shared folder") {
  if (address_sanitizer) return skip("a child among threads may wait permanently for AddressSanitizer's allocator");
  const Machine machine;
  const Scene scene;
  const SharedBucket bucket;
  const int stops = chosen_count("KILN_TEST_STOPS", 30);
  const Engine elsewhere(options("", MissPolicy::nearest));
  const ScaleCall call(elsewhere, 32, 128);
  std::minstd_rand random(105);
  // The bucket's place and value are a machine's that met no fault.
  const store::Record record = [&] {
    Options chosen = scene.options(scene.overlay());
    chosen.remote = bucket.path();
    const Engine engine(chosen);
    engine.op("scale").launch(call.problem, call.arguments, machine.stream());
    REQUIRE(engine.wait_for_tunes(patience));
    for (store::Record& each : records_of(scene.overlay()))
      if (each.bucket.starts_with("rows=32 ")) return each;
    throw std::runtime_error("nothing was tuned");
  }();
  const store::RemotePlace place = store::place_of(record);
  const std::string value = remote::seal(record, {}, nullptr);
  constexpr std::chrono::seconds limit(30);  // four answers of 1.1 s at most and the tune, on a machine under load
  Clock::duration longest{};
  std::int64_t served = 0, errors = 0;
  for (int stop = 0; stop < stops; ++stop) {
    if (stop % 3 == 0) bucket.empty();
    bucket.age(2 * claim_term);  // of an engine that could not release it
    const DyingMachine dying(bucket.path(), place, value, static_cast<int>(random() % 80));
    Stops watcher(random);
    {
      Options chosen = scene.options("");
      chosen.isolation = Isolation::in_process;
      engine::EngineState state(chosen);
      folder_watcher = &watcher;
      state.shared = std::make_unique<engine::SharedAnswers>(
          state, std::make_unique<remote::Folder>(bucket.path(), watched_calls()), remote::ClientSettings());
      plan::OpState& op = state.op_state(state.ops.find("scale").value());
      call.poison();
      const auto began = Clock::now();
      CHECK(is_hit(plan::launch(op, call.problem, call.arguments, reinterpret_cast<CUstream>(machine.stream()))));
      longest = std::max<Clock::duration>(longest, Clock::now() - began);
      call.check();
      served += state.shared->client().counters().hits;
      errors += state.shared->client().counters().errors;
    }
    folder_watcher = nullptr;
  }
  CHECK(longest < limit);
  CHECK(errors > 0);
  remote::Folder sound(bucket.path());
  bucket.age(std::chrono::hours(1));
  if (const auto left = sound.get(place, in_time())) CHECK(remote::open_row(place, *left, {}).row);
  kiln::testing::KeptRow("launches")
      .with("back_end", "folder")
      .with("stops", stops)
      .with("served", served)
      .with("errors", errors)
      .with("longest_seconds", std::chrono::duration<double>(longest).count());
  MESSAGE(stops, " stops, ", served, " launches served by the folder, ", errors, " errors, the longest launch took ",
          std::chrono::duration<double>(longest).count(), " s");
  if (std::getenv("KILN_TEST_STOPS") == nullptr)
    tally(105, stops, "launches while the folder stops and a machine dies");
}

}  // namespace kiln::faults

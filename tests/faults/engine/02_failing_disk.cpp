// System calls on the overlay that fail while an engine runs: launches and tunes go on.
#include <cerrno>

#include "faults/engine/scene.hpp"
#include "faults/store/system_calls.hpp"

namespace kiln::faults {
namespace {

struct Fault {
  Call call;
  int error;
  std::int64_t from;
  bool sticky;
};

/// Fails the calls on files that the fault is about.
class Failing : public Watcher {
 public:
  explicit Failing(const Fault& fault) : fault_(fault) {}
  Fate before(const Attempt& attempt) override {
    if (attempt.call != fault_.call) return {};
    const std::int64_t number = seen_++;
    const bool strikes = fault_.sticky ? number >= fault_.from : number == fault_.from;
    struck_ = struck_ || strikes;
    return {strikes ? fault_.error : 0};
  }
  [[nodiscard]] bool struck() const noexcept { return struck_; }

 private:
  Fault fault_;
  std::int64_t seen_ = 0;
  bool struck_ = false;
};

std::vector<Fault> faults() {
  std::vector<Fault> all;
  for (const Call call : {Call::open, Call::status, Call::write, Call::truncate, Call::sync, Call::unlink})
    for (const std::int64_t from : {0, 2, 9})
      for (const bool sticky : {false, true})
        if (sticky || from == 2) all.push_back({call, EIO, from, sticky});
  for (const std::int64_t from : {0, 4, 16}) all.push_back({Call::write, ENOSPC, from, true});
  // Look-ups that are refused cost compiles, so there are fewer of these.
  for (const Call call : {Call::read, Call::lock})
    for (const std::int64_t from : {0, 4})
      all.push_back({call, EIO, from, false}), all.push_back({call, EIO, from, true});
  return all;
}

}  // namespace

TEST_CASE(
    "fault 02: whichever call on the overlay fails, launches and tunes go on, with right results and at most one warning") {
  const Machine machine;
  std::int64_t struck = 0, told = 0;
  for (const Fault& fault : faults()) {
    CAPTURE(static_cast<int>(fault.call));
    CAPTURE(fault.from);
    CAPTURE(fault.sticky);
    const Scene scene;
    {
      const Engine engine(scene.options(scene.overlay()));
      CHECK(engine.warnings().empty());
      Failing failing(fault);
      {
        const Watch watch(failing);
        check_goes_on(engine, machine.stream());
        check_goes_on(engine, machine.stream(), 8);
        const auto said = engine.warnings();
        // Of the file that cannot be read, and of the one that cannot be written: each once.
        CHECK(said.size() <= 3);
        told += said.empty() ? 0 : 1;
      }
      struck += failing.struck() ? 1 : 0;
    }
    // What was committed is whole, and the next process goes on from it.
    const Engine again(scene.options(scene.overlay()));
    CHECK(again.warnings().empty());
    check_goes_on(again, machine.stream());
    CHECK(again.stats().quarantined == 0);
  }
  CHECK(struck > 15);
  CHECK(told > 8);
  MESSAGE(struck, " faults struck, ", told, " of them were told");
  tally(2, struck, "calls on an engine's overlay that fail while it runs");
}

}  // namespace kiln::faults

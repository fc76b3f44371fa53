// A callback of a tune asks its own engine, or Tuner, for what that tune stands in the way of. It is refused with a sentence, for it would
// wait for itself; the tune goes on, and what is ready or recorded is served within callbacks too.
#include "faults/engine/scene.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

/// Runs `work` once, within the first callback for a candidate, and keeps what it threw.
class Within {
 public:
  explicit Within(std::function<void()> work) : work_(std::move(work)) {}
  void operator()(const TuneEvent& event) {
    if (event.kind != TuneEvent::Kind::candidate || !work_) return;
    const auto work = std::exchange(work_, nullptr);
    try {
      work();
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::bad_input);
      said_ = error.what();
    }
  }
  [[nodiscard]] const std::string& said() const noexcept { return said_; }
  [[nodiscard]] bool was_asked() const noexcept { return !work_; }

 private:
  std::function<void()> work_;
  std::string said_;
};

constexpr const char* refusal = "was asked for in a callback of a tune";

}  // namespace

TEST_CASE("fault 61: a launch within on_tune that would wait for the tune itself is refused, and the tune goes on") {
  const Machine machine;
  const Scene scene;
  Options options = scene.options(scene.overlay());
  std::function<void(const TuneEvent&)> watch;
  options.on_tune = [&](const TuneEvent& event) { watch(event); };
  const Engine engine(options);
  const ScaleCall tuned(engine, 32, 128), other(engine, 16, 128), recorded(engine, 64, 128);

  Within same([&] { tuned.launch(machine.stream()); });
  watch = std::ref(same);
  CHECK(tuned.launch(machine.stream()) == Origin::overlay);
  CHECK(contains(same.said(), "scale rows=32 cols=128 dtype=f32 was asked for in a callback of a tune"));

  Within another([&] {
    recorded.launch(machine.stream());
    tuned.launch(machine.stream());
    ScaleCall(engine, 4, 128).launch(machine.stream());
  });
  watch = std::ref(another);
  CHECK(other.launch(machine.stream()) == Origin::overlay);
  CHECK(contains(another.said(), "scale rows=4 cols=128"));
  watch = [](const TuneEvent&) {};
  CHECK(other.launch(machine.stream()) == Origin::hot);
  CHECK_NOTHROW(ScaleCall(engine, 4, 128).launch(machine.stream()));
  tally(61, 4, "asks in a callback of a tune");
}

TEST_CASE("fault 61: a Tuner asked within its own callbacks refuses, and finishes what it does") {
  const Machine machine;
  const Scene scene;
  const Engine engine(scene.options(scene.overlay()));
  const Tuner tuner(engine);
  const auto demand = [&](std::int64_t rows) {
    return std::vector<Demand>{{"scale", tuner.op("scale").problem({{"rows", rows}, {"cols", 128}, {"dtype", "f32"}})}};
  };
  std::vector<Within> asked;
  asked.emplace_back([&] { (void)tuner.tune(demand(8)); });
  asked.emplace_back([&] { (void)Tuner(engine).tune(demand(8)); });
  asked.emplace_back([&] { ScaleCall(engine, 8, 128).launch(machine.stream()); });
  TuneChoice choice;
  choice.on_step = [&](const TuneStep& step) {
    for (Within& each : asked) each(step.event);
  };
  std::string on_compile;
  choice.on_compile = [&](const CompileStep&) {
    if (on_compile.empty()) on_compile = error_of([&] { (void)tuner.tune(demand(8)); }).what();
  };
  const Prewarmed done = tuner.prewarm(demand(32), choice);
  CHECK(done.tuned.buckets.at(0).outcome == TunedBucket::Outcome::tuned);
  for (const Within& each : asked) {
    CHECK(each.was_asked());
    CHECK(contains(each.said(), refusal));
  }
  CHECK(contains(on_compile, refusal));
  CHECK(tuner.tune(demand(8)).buckets.at(0).outcome == TunedBucket::Outcome::tuned);
  tally(61, 2, "Tuners asked in their own callbacks");
}

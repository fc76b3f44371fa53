// A process exits while a thread of an engine tunes, or destroys the engine. Nothing that the thread uses is destroyed by then.
#include <array>
#include <future>
#include <thread>

#include "faults/engine/scene.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

constexpr std::array delays_ms = {0, 2, 10, 40, 150, 600};  // until the process exits, most of them within the tune

[[noreturn]] void exit_in_a_while() {
  std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(std::getenv("FAULTS_EXIT_MS"))));
  std::exit(0);
}

void exit_at_each(const std::string& name) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  for (const int delay : delays_ms)
    expect(0, "FAULTS_EXIT_MS=" + std::to_string(delay) + " '" + self + "' --no-skip '--test-case=" + name + "'");
  tally(109, delays_ms.size(), name.substr(name.find(": ") + 2));
}

}  // namespace

TEST_CASE("child 109: exits with a static engine that tunes" * doctest::skip()) {
  static const auto& machine = *new Machine;
  static const Scene scene;
  static const Engine engine(with_worker(scene.options(scene.overlay()), MissPolicy::background));
  ScaleCall(engine, 32, 128).launch(machine.stream());
  exit_in_a_while();
}

TEST_CASE("child 109: exits with an engine that tunes and is never destroyed" * doctest::skip()) {
  static const auto& machine = *new Machine;
  static const Scene scene;
  static const auto& engine = *new Engine(with_worker(scene.options(scene.overlay()), MissPolicy::background));
  ScaleCall(engine, 32, 128).launch(machine.stream());
  exit_in_a_while();
}

TEST_CASE("child 109: exits while an engine that its callback released destroys itself" * doctest::skip()) {
  static const auto& machine = *new Machine;
  static const Scene scene;
  static auto& engine = *new std::optional<Engine>;
  static auto& ready = *new std::promise<void>;
  static auto& released = *new std::promise<void>;
  Options chosen = with_worker(scene.options(scene.overlay()), MissPolicy::background);
  chosen.on_tune = [may_go = ready.get_future().share()](const TuneEvent&) {
    if (!engine) return;
    may_go.wait();
    engine.reset();
    released.set_value();
  };
  engine.emplace(chosen);
  ScaleCall(*engine, 32, 128).launch(machine.stream());
  ready.set_value();
  REQUIRE(released.get_future().wait_for(patience) == std::future_status::ready);
  exit_in_a_while();
}

TEST_CASE("fault 109: a process exits at any moment while a static engine tunes in the background") {
  exit_at_each("child 109: exits with a static engine that tunes");
}

TEST_CASE("fault 109: a process exits at any moment while an engine that is never destroyed tunes in the background") {
  exit_at_each("child 109: exits with an engine that tunes and is never destroyed");
}

TEST_CASE("fault 109: a process exits while an engine that its callback released destroys itself") {
  exit_at_each("child 109: exits while an engine that its callback released destroys itself");
}

// When files are made and machine code is loaded: what a process's start waits for.
#include <thread>

#include "e2e/command.hpp"
#include "e2e/gate.hpp"

namespace e2e {

using kiln::Engine;
using kiln::Loading;
using kiln::MissPolicy;
using kiln::Origin;

namespace {

namespace fs = std::filesystem;

std::int64_t loads() { return query("calls cuModuleLoadDataEx"); }

/// The op `scale`, tuned in the buckets of 64 and of 256 rows.
fs::path tuned(const TemporaryFolder& folder) {
  for (const char* rows : {"64", "256"})
    expect(0, std::string("kiln tune scale cols=128 dtype=f32 rows=") + rows + globals(folder));
  return folder / "overlay.kiln";
}

kiln::Options loading(Loading loading, const fs::path& overlay) {
  kiln::Options chosen = options(overlay, MissPolicy::error);
  chosen.loading = loading;
  return chosen;
}

}  // namespace

TEST_CASE("under lazy loading a bucket's machine code is loaded at its first launch") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned(folder);
  const Machine machine;
  const Engine engine(loading(Loading::lazy, overlay));
  const std::int64_t before = loads();
  const ScaleCall call(engine, 64, 128);
  CHECK(loads() == before);
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(loads() == before + 1);
  CHECK(call.launch(machine.stream()) == Origin::hot);
  CHECK(loads() == before + 1);
}

TEST_CASE("buckets that run the same machine code load it once") {
  const Machine machine;
  const Engine engine(options("", MissPolicy::nearest));
  const ScaleCall small(engine, 64, 128), large(engine, 256, 128);
  const std::int64_t before = loads();
  const kiln::Plan first = small.op.plan(small.problem), second = large.op.plan(large.problem);
  REQUIRE(first.config() == second.config());
  CHECK(loads() == before + 1);
  small.launch(machine.stream());
  large.launch(machine.stream());
}

TEST_CASE("under eager loading an op comes with what the files hold of it, and no launch of that loads anything") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned(folder);
  const Machine machine;
  const std::int64_t before = loads();
  const Engine engine(loading(Loading::eager, overlay));
  CHECK(loads() == before);
  const ScaleCall small(engine, 64, 128), large(engine, 256, 128);
  const std::int64_t after = loads();
  CHECK(after > before);
  CHECK(small.launch(machine.stream()) == Origin::overlay);
  CHECK(large.launch(machine.stream()) == Origin::overlay);
  CHECK(large.launch(machine.stream()) == Origin::hot);
  CHECK(loads() == after);
  CHECK(engine.stats().compiles == 0);
}

TEST_CASE("while an op's machine code is loaded eagerly, other ops are had") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned(folder);
  const Machine machine;
  const Engine engine(loading(Loading::eager, overlay));
  const std::int64_t before = loads();
  control("hold cuModuleLoadDataEx");
  std::jthread loading_one([&] { static_cast<void>(engine.op("scale")); });
  while (loads() == before) std::this_thread::yield();
  Gate had;
  std::jthread having_another([&] {
    static_cast<void>(engine.op("early_scale"));
    had.open();
  });
  CHECK(had.wait());
  CHECK(engine.coverage().total == 0);  // of what is there
  control("heal");
  loading_one.join();
  having_another.join();
  CHECK(engine.coverage().hits == 2);
}

TEST_CASE("eager loading compiles nothing: a record without machine code waits for its first launch") {
  const TemporaryFolder folder;
  tuned(folder);
  const fs::path base = folder / "base.kiln";
  expect(0, "kiln cache export --no-cubins -o " + base.string() + globals(folder));
  const Machine machine;
  kiln::Options chosen = loading(Loading::eager, folder / "other.kiln");
  chosen.bases = {base};
  const Engine engine(chosen);
  const ScaleCall call(engine, 64, 128);
  CHECK(engine.stats().compiles == 0);
  CHECK(call.launch(machine.stream()) == Origin::base);
  CHECK(engine.stats().compiles == 1);
}

TEST_CASE("a launch that a shipped file serves makes no overlay") {
  const TemporaryFolder folder;
  tuned(folder);
  const fs::path base = folder / "base.kiln";
  expect(0, "kiln cache export -o " + base.string() + globals(folder));
  const Machine machine;
  kiln::Options chosen = loading(Loading::lazy, folder / "cache" / "overlay.kiln");
  chosen.bases = {base};
  {
    const Engine engine(chosen);
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::base);
    CHECK(engine.warnings().empty());
    CHECK(!fs::exists(folder / "cache"));
  }
  CHECK(fs::exists(chosen.overlay.value()));  // what was used is counted at the end
}

}  // namespace e2e

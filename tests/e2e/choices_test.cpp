// A record of several choices: each real size is launched by the choice whose interval holds it, and what that one does not take by the
// next answer, as explain says.
#include <fmt/format.h>

#include "e2e/graph.hpp"
#include "e2e/library_fixture.hpp"

namespace e2e {

using kiln::Engine;
using kiln::MissPolicy;
using kiln::Origin;

namespace {

struct Choice {
  std::string sizes, implementation, config;
  std::string role = "fastest";
};

std::string json_of(const Choice& choice, const std::string& like) {
  std::string text = like;
  set(text, "sizes", choice.sizes);
  set(text, "implementation", choice.implementation);
  set(text, "config", choice.config);
  set(text, "role", choice.role);
  return text;
}

/// An overlay with these choices for one bucket of `scale`, tuned there in f32 and then rewritten as text.
void keep(const TemporaryFolder& folder, std::int64_t rows, std::int64_t cols, const std::vector<Choice>& choices) {
  {
    const Machine machine;
    ScaleCall(Engine(options(folder / "overlay.kiln")), rows, cols).launch(machine.stream());
  }
  edit_records(folder, [&](std::string& line) {
    std::string all;
    edit_choices(line, [&](std::string& choice) {
      if (all.empty())
        for (const Choice& each : choices) all += (all.empty() ? "" : ",") + json_of(each, choice);
      choice.clear();
    });
    const std::string name = R"("choices":[)";
    if (!all.empty()) line.insert(line.find(name) + name.size(), all);
  });
}

const std::vector<Choice> three = {{"rows=33..40 cols=65..128", "tiled", "threads=64 vector=1"},
                                   {"rows=41..50 cols=65..128", "tiled", "threads=128 vector=4"},
                                   {"rows=51..64 cols=65..128", "tiled", "threads=256 vector=1"}};

std::int64_t launches(const char* kernel) { return query(std::string("launches ") + kernel); }

}  // namespace

TEST_CASE("a record with three intervals launches each size by its own config") {
  const TemporaryFolder folder;
  keep(folder, 64, 128, three);
  const Machine machine;
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::error));
  const std::pair<std::int64_t, const char*> expected[] = {
      {33, "scale_tiled<float, 64, 1>"},  {40, "scale_tiled<float, 64, 1>"},  {41, "scale_tiled<float, 128, 4>"},
      {50, "scale_tiled<float, 128, 4>"}, {51, "scale_tiled<float, 256, 1>"}, {64, "scale_tiled<float, 256, 1>"}};
  for (const auto& [rows, kernel] : expected) {
    const ScaleCall call(engine, rows, 128);
    const std::int64_t before = launches(kernel);
    CHECK_FALSE(is_fallback(call.launch(machine.stream())));
    CHECK(launches(kernel) == before + 1);
    CHECK(call.launch(machine.stream()) == Origin::hot);
    CHECK(launches(kernel) == before + 2);
  }
  const kiln::Stats stats = engine.stats();
  CHECK(stats.overlay == 3);  // the first launch of each plan
  CHECK(stats.misses.unusable + stats.constraint_fallbacks == 0);
  const ScaleCall any(engine, 40, 128);
  CHECK(any.op.plan(any.problem).config() == "threads=256 vector=1");  // that of the bucket's upper edge
}

TEST_CASE("two open axes: a size is found on each by itself") {
  const TemporaryFolder folder;
  keep(folder, 64, 128,
       {{"rows=33..48 cols=65..96", "tiled", "threads=64 vector=1"},
        {"rows=33..48 cols=97..128", "tiled", "threads=128 vector=4"},
        {"rows=49..64 cols=65..80", "tiled", "threads=256 vector=1"},
        {"rows=49..64 cols=81..128", "tiled", "threads=64 vector=4"}});
  const Machine machine;
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::error));
  for (const std::int64_t rows : {33, 48, 49, 64})
    for (const std::int64_t cols : {68, 80, 84, 96, 100, 128}) {
      CAPTURE(rows);
      CAPTURE(cols);
      const ScaleCall call(engine, rows, cols);
      const char* kernel = rows <= 48 ? (cols <= 96 ? "scale_tiled<float, 64, 1>" : "scale_tiled<float, 128, 4>")
                                      : (cols <= 80 ? "scale_tiled<float, 256, 1>" : "scale_tiled<float, 64, 4>");
      const std::int64_t before = launches(kernel);
      call.launch(machine.stream());
      CHECK(launches(kernel) == before + 1);
    }
}

TEST_CASE("explain names at each size the config that the launch runs") {
  const TemporaryFolder folder;
  keep(folder, 64, 128, three);
  const Machine machine;
  for (const MissPolicy policy : {MissPolicy::error, MissPolicy::nearest}) {
    const Engine engine(options(folder / "overlay.kiln", policy));
    for (std::int64_t rows = 33; rows <= 64; ++rows)
      for (const std::int64_t cols : {65, 66, 67, 68, 100, 101, 127, 128}) {  // vectors of 4 take multiples of 4
        CAPTURE(rows);
        CAPTURE(cols);
        const ScaleCall call(engine, rows, cols);
        const kiln::Explanation explained = engine.explain(call.op, call.problem);
        REQUIRE(explained.passes.size() == 1);
        const std::string kernel = explained.passes[0].substr(0, explained.passes[0].find(" grid"));
        const std::int64_t before = launches(kernel.c_str());
        const Origin origin = call.launch(machine.stream());
        CHECK_MESSAGE(launches(kernel.c_str()) == before + 1, kernel);
        CHECK((origin == Origin::hot ? Origin::overlay : origin) == explained.origin);
      }
    CHECK(engine.stats().constraint_fallbacks == 0);  // other choices of the record take what one does not
  }
}

TEST_CASE("a size that breaks its choice's constraint goes to the record's next one, else to a default") {
  const TemporaryFolder folder;
  const Machine machine;
  SUBCASE("to another choice") {
    keep(folder, 64, 128, three);
    const Engine engine(options(folder / "overlay.kiln", MissPolicy::error));
    const ScaleCall odd(engine, 45, 101);
    const std::int64_t before = launches("scale_tiled<float, 256, 1>");
    CHECK(odd.launch(machine.stream()) == Origin::overlay);
    CHECK(odd.launch(machine.stream()) == Origin::hot);
    CHECK(launches("scale_tiled<float, 256, 1>") == before + 2);
    CHECK(engine.stats().constraint_fallbacks == 0);
  }
  SUBCASE("to a default") {
    keep(folder, 64, 128, {{"rows=33..64 cols=65..128", "tiled", "threads=128 vector=4"}});
    const Engine engine(options(folder / "overlay.kiln", MissPolicy::error));
    CHECK(ScaleCall(engine, 45, 101).launch(machine.stream()) == Origin::default_);
    CHECK(engine.stats().constraint_fallbacks == 1);
  }
}

TEST_CASE("a choice that is not declared leaves its sizes to the record's others, and the record is a hit") {
  const TemporaryFolder folder;
  std::vector<Choice> choices = three;
  choices[1].config = "threads=96 vector=1";
  keep(folder, 64, 128, choices);
  const Machine machine;
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::error));
  const std::int64_t before = launches("scale_tiled<float, 256, 1>");
  CHECK(ScaleCall(engine, 45, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(launches("scale_tiled<float, 256, 1>") == before + 1);
  CHECK(engine.stats().misses.unusable == 0);
}

TEST_CASE("a prepared bucket of several choices is captured at every size, each with its workspace") {
  const TemporaryFolder folder;
  std::vector<Choice> choices = three;
  choices[1] = {"rows=41..50 cols=65..128", "plain", ""};  // which has a workspace
  keep(folder, 64, 128, choices);
  const Machine machine;
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::error));
  const ScaleCall small(engine, 33, 128), middle(engine, 45, 128), large(engine, 64, 128);
  const std::vector<kiln::Problem> problems{small.problem, middle.problem, large.problem};
  const std::int64_t loads = query("calls cuModuleLoadDataEx");
  CHECK(engine.prepare(small.op, problems, machine.stream()).hits == 3);
  CHECK(query("calls cuModuleLoadDataEx") > loads);
  const std::int64_t broken = query("broken");
  const std::int64_t before = launches("scale_plain<float>");
  for (const ScaleCall* call : {&small, &middle, &large}) {
    call->poison();
    const Graph graph(machine, Graph::global, [&] {
      CHECK_FALSE(is_fallback(call->op.launch(call->problem, call->arguments, machine.stream())));
    });
    graph.replay();
    call->check();
  }
  CHECK(query("broken") == broken);
  CHECK(launches("scale_plain<float>") == before + 1);
  CHECK(engine.coverage(small.op, problems, machine.stream()).hits == 3);
}

TEST_CASE(
    "a library at some of a bucket's sizes: those that it refuses, and lengths on the device, go to the own kernel") {
  const TemporaryFolder folder;
  tune_in(folder);
  edit_records(folder, [&](std::string& line) {
    edit_choices(line, [&](std::string& choice) {
      if (needs_no_library(choice)) return;
      std::string low = choice, high = choice;
      set(high, "sizes", "m=41..64");
      set(low, "sizes", "m=33..40");
      set(low, "implementation", "simt");
      set(low, "config", usual);
      choice = low + "," + high;
    });
  });
  const Machine machine;
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::error));
  const auto implementation_at = [&](std::int64_t m) {
    const GemmCall call(engine, m);
    CHECK_FALSE(is_fallback(call.launch(machine.stream())));
    return engine.explain(call.op, call.problem).implementation;
  };
  CHECK(implementation_at(33) == "simt");
  CHECK(implementation_at(40) == "simt");
  CHECK(implementation_at(41) == "cublaslt");
  CHECK(implementation_at(64) == "cublaslt");
  const GemmCall call(engine);
  const Floats length(std::vector<float>(1, 0.0F));
  kiln::Arguments arguments = call.arguments;
  arguments.set(call.op.axis("m"), static_cast<const std::int32_t*>(length.address()));
  call.poison();
  CHECK_FALSE(is_fallback(call.op.launch(call.problem, arguments, machine.stream())));
  call.check(0);
  CHECK(engine.stats().constraint_fallbacks == 0);
}

TEST_CASE("a first launch has a library load the algorithm of its own sizes alone, also where it is captured") {
  const TemporaryFolder folder;
  tune_in(folder);
  edit_records(folder, [&](std::string& line) {
    edit_choices(line, [&](std::string& choice) {
      if (needs_no_library(choice)) return;
      std::string low = choice;
      set(low, "sizes", "m=33..40");
      set(low, "config",
          "algorithm=1 tile=20 stages=3 splits=1 reduction=0 swizzle=0 custom=0 inner=0 cluster=0 extra=0");
      set(choice, "sizes", "m=41..64");
      choice = low + "," + choice;
    });
  });
  const Machine machine;
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::nearest));
  const auto captures = [] { return query("calls cuStreamBeginCapture_v2"); };
  const GemmCall low(engine, 33), high(engine, 64);
  const std::int64_t before = captures();
  CHECK_FALSE(is_fallback(low.launch(machine.stream())));
  CHECK(captures() == before + 1);
  high.poison();
  Graph graph(machine.stream(), Graph::global, [&] { high.op.launch(high.problem, high.arguments, machine.stream()); });
  CHECK(captures() == before + 3);  // the test's own is one
  graph.replay();
  high.check(64);
  CHECK_FALSE(is_fallback(high.launch(machine.stream())));
  CHECK(captures() == before + 3);
}

}  // namespace e2e

// Where cuBLASLt won: Kiln's own fastest kernels in the same record, which serve what the library does not.
#include <algorithm>
#include <chrono>
#include <thread>

#include "e2e/graph.hpp"
#include "e2e/library_fixture.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;
using kiln::MissPolicy;
using kiln::Origin;

TEST_CASE(
    "where an own kernel that is launched early outdoes the library that won by usual launches, it is the record") {
  const Machine machine;
  const TemporaryFolder folder;
  kiln::Options chosen = gemm_options(folder / "overlay.kiln");
  chosen.isolation = kiln::Isolation::in_process;
  std::map<std::string, double> fastest_ns;  // of each implementation, launched as usual
  chosen.on_tune = [&](const kiln::TuneEvent& event) {
    if (event.kind != kiln::TuneEvent::Kind::candidate || event.verdict != "ok") return;
    const auto at = fastest_ns.emplace(event.implementation, event.cost_ns).first;
    at->second = std::min(at->second, event.cost_ns);
  };
  const char* speed = "";
  SUBCASE("faster than the library") { speed = "0.05"; }
  SUBCASE("faster, and still slower than the library") { speed = "0.5"; }
  const bool outdone = std::string_view(speed) == "0.05";
  control(std::string("kernel prompt ") + speed + " gemm_simt");
  const Engine engine(chosen);
  const GemmCall call(engine);
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(fastest_ns.at("cublaslt") < fastest_ns.at("simt"));
  CHECK(call.implementation() == (outdone ? "simt" : "cublaslt"));
  const kiln::Plan plan = call.op.plan(call.problem);
  CHECK(contains(plan.config(), "pdl=1") == outdone);
  CHECK((plan.cost_ns() < 0.8 * fastest_ns.at("cublaslt")) == outdone);
  const std::string listed = expect(0, "kiln cache ls --json" + globals(folder));
  CHECK(contains(listed, R"("without_library":null)") == outdone);  // nothing stands behind an own kernel
  CHECK(contains(expect(0, "kiln --json cache show gemm" + globals(folder)), "pdl=1"));
  CHECK(contains(expect(0, "kiln explain gemm m=64 n=48 k=40 dtype=f32" + globals(folder)), " programmatic") ==
        outdone);
}

TEST_CASE("a launch that the library cannot take is a hit of the choice without a library") {
  const TemporaryFolder folder;
  tune_in(folder);
  const Machine machine;
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::error));
  const GemmCall call(engine);
  call.launch(machine.stream());
  const std::int64_t compiles = engine.stats().compiles;
  SUBCASE("sizes that the algorithm refuses") {
    CHECK(GemmCall(engine, 37).launch(machine.stream()) == Origin::overlay);
    CHECK(GemmCall(engine, 37).launch(machine.stream()) == Origin::hot);
    CHECK(GemmCall(engine, 38).launch(machine.stream()) == Origin::hot);
  }
  SUBCASE("an address that is not aligned") {
    kiln::Arguments arguments = call.arguments;
    const Floats x(std::vector<float>(64 * 40 + 1, 0.0F));
    arguments.set(call.op.tensor("x"), x.address(4));
    CHECK(call.op.launch(call.problem, arguments, machine.stream()) == Origin::overlay);
  }
  SUBCASE("a length in device memory") {
    const Floats length(std::vector<float>(1, 0.0F));
    const std::int32_t rows = 21;
    REQUIRE(driver_call<unsigned long long, const void*, std::size_t>(
                "cuMemcpyHtoD_v2", reinterpret_cast<unsigned long long>(length.address()), &rows, sizeof rows) == 0);
    kiln::Arguments arguments = call.arguments;
    arguments.set(call.op.axis("m"), static_cast<const std::int32_t*>(length.address()));
    call.poison();
    CHECK(call.op.launch(call.problem, arguments, machine.stream()) == Origin::overlay);
    call.check(rows);
    call.poison();
    CHECK(call.op.launch(call.problem, arguments, machine.stream()) == Origin::hot);
    call.check(rows);
  }
  CHECK(engine.stats().constraint_fallbacks == 0);
  CHECK(engine.stats().compiles == compiles);
}

TEST_CASE("a choice that could not be made for a moment is tried again, and not by each launch") {
  using Clock = std::chrono::steady_clock;
  const TemporaryFolder folder;
  tune_in(folder);
  const Machine machine;
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::error));
  const GemmCall refused(engine, 37);
  // The choice's load; the default's, of the same machine code, succeeds, so that the next try finds it loaded.
  control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY");
  const auto begun = Clock::now();
  CHECK(refused.launch(machine.stream()) == Origin::default_);
  const std::int64_t tries = query("calls cuModuleLoadDataEx");
  std::int64_t stood_in = 1;
  Origin origin = Origin::default_;
  while (origin == Origin::default_ && Clock::now() - begun < std::chrono::seconds(30)) {
    origin = refused.op.launch(refused.problem, refused.arguments, machine.stream());
    stood_in += origin == Origin::default_ ? 1 : 0;
  }
  CHECK(origin == Origin::overlay);
  CHECK(refused.launch(machine.stream()) == Origin::hot);
  CHECK(Clock::now() - begun >= std::chrono::milliseconds(100));  // the first pause
  CHECK(query("calls cuModuleLoadDataEx") == tries);
  CHECK(engine.stats().constraint_fallbacks == stood_in);
  REQUIRE(engine.warnings().size() == 1);
  CHECK_MESSAGE(contains(engine.warnings()[0], " is left out for now: "), engine.warnings()[0]);
}

TEST_CASE("a preparation tries the choice that could not be made for a moment at once") {
  const TemporaryFolder folder;
  tune_in(folder);
  const Machine machine;
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::error));
  const GemmCall refused(engine, 37);
  control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY sticky");
  for (int i = 0; i < 10; ++i)
    CHECK(error_of([&] { refused.op.launch(refused.problem, refused.arguments, machine.stream()); }).kind() ==
          ErrorKind::out_of_memory);
  control("heal");
  engine.prepare(refused.op, {&refused.problem, 1}, machine.stream());
  CHECK(refused.launch(machine.stream()) == Origin::overlay);
}

TEST_CASE("a choice that cannot be made is left alone") {
  const TemporaryFolder folder;
  tune_in(folder);
  const Machine machine;
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::error));
  const GemmCall refused(engine, 37);
  control("module CUDA_ERROR_INVALID_IMAGE simt");
  CHECK(error_of([&] { refused.op.launch(refused.problem, refused.arguments, machine.stream()); }).kind() ==
        ErrorKind::driver_failed);
  control("heal");
  engine.prepare(refused.op, {&refused.problem, 1}, machine.stream());
  CHECK(refused.launch(machine.stream()) == Origin::default_);
  REQUIRE(engine.warnings().size() >= 1);
  CHECK_MESSAGE(contains(engine.warnings()[0], " is left out: "), engine.warnings()[0]);
}

TEST_CASE("a graph captures the library's first launch, and a length on the device finds what needs no library ready") {
  const Machine machine;
  const TemporaryFolder folder;
  tune_in(folder);
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::error));
  const GemmCall call(engine);
  CHECK(engine.prepare(call.op, {&call.problem, 1}, machine.stream()).hits == 1);
  const std::int64_t broken = query("broken");
  const Floats length(std::vector<float>(1, 0.0F));
  kiln::Arguments on_device = call.arguments;
  on_device.set(call.op.axis("m"), static_cast<const std::int32_t*>(length.address()));
  const Graph graph(machine, Graph::global, [&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  const Graph other(machine, Graph::global,
                    [&] { CHECK(call.op.launch(call.problem, on_device, machine.stream()) == Origin::overlay); });
  CHECK(query("broken") == broken);
  call.poison();
  graph.replay();
  call.check(64);
  call.poison();
  other.replay();
  call.check(0);
}

TEST_CASE("child: the own kernel serves" * doctest::skip()) {
  const Machine machine;
  const Engine engine(gemm_child_options());
  const GemmCall call(engine);
  const Origin origin = std::getenv("E2E_BASE") != nullptr ? Origin::base : Origin::overlay;
  const bool has_code = std::getenv("E2E_NO_CODE") == nullptr;
  CHECK(engine.explain(call.op, call.problem).origin == origin);
  CHECK(call.launch(machine.stream()) == origin);
  CHECK(call.launch(machine.stream()) == Origin::hot);
  CHECK(call.implementation() == "simt");
  CHECK(engine.prepare(call.op, {&call.problem, 1}, machine.stream()).hits == 1);
  const kiln::Stats stats = engine.stats();
  CHECK(stats.tunes == 0);
  CHECK(stats.compiles == (has_code ? 0 : 1));
  CHECK(stats.misses.unusable + stats.misses.absent == 0);
  CHECK(stats.stale == (std::getenv("E2E_STALE") != nullptr ? 1 : 0));
}

TEST_CASE("child: the record is unusable" * doctest::skip()) {
  const Machine machine;
  const Engine engine(gemm_child_options());
  const GemmCall call(engine);
  if (engine.explain(call.op, call.problem).origin == Origin::overlay) FAIL("the record serves");
  const Origin origin = call.launch(machine.stream());
  const bool tunes = std::string_view(std::getenv("E2E_POLICY")) == "tune";
  CHECK((tunes ? origin == Origin::overlay : is_fallback(origin)));
  CHECK(call.implementation() != "cublaslt");
  CHECK(engine.stats().misses.unusable == 1);
}

TEST_CASE("child: nothing serves" * doctest::skip()) {
  const Machine machine;
  const Engine engine(gemm_child_options());
  const GemmCall call(engine);
  const kiln::Error error = error_of([&] { call.launch(machine.stream()); });
  CHECK(error.kind() == ErrorKind::not_tuned);
  CHECK(contains(error.what(), "the library cublaslt is not here"));
}

TEST_CASE("another version of the library serves what it takes, as stale, and the own kernel the rest") {
  const TemporaryFolder folder;
  tune_in(folder);
  run_child("child: the record serves", in_child(folder, "error", "FAKE_CUBLASLT_VERSION=130102"));
  run_child("child: the own kernel serves",
            in_child(folder, "error", "FAKE_CUBLASLT_VERSION=130102 FAKE_CUBLASLT_WITHOUT=4"));
}

TEST_CASE("where the library is missing the own kernel is a hit, without NVRTC too") {
  const TemporaryFolder folder;
  tune_in(folder);
  for (const char* policy : {"error", "nearest", "tune"})
    run_child("child: the own kernel serves", in_child(folder, policy, no_library));
  run_child("child: the own kernel serves", in_child(folder, "error", no_library) + " KILN_NVRTC_LIBRARY=none");
}

TEST_CASE("the choice without a library is shipped with its machine code, in each form of a file") {
  const TemporaryFolder folder;
  tune_in(folder);
  const std::string base = (folder / "base.kiln").string(), text = (folder / "records.jsonl").string();
  const auto serve = [&](const std::string& more) {
    const std::string empty = variable("E2E_OVERLAY", folder / "empty.kiln") + variable("E2E_POLICY", "error");
    run_child("child: the own kernel serves", empty + no_library + " " + variable("E2E_BASE", base) + more);
  };
  SUBCASE("exported") {
    expect(0, "kiln cache export --no-candidates -o " + base + globals(folder));
    serve("KILN_NVRTC_LIBRARY=none");
  }
  SUBCASE("as text, with candidates") {
    expect(0, "kiln cache export --text -o " + text + globals(folder));
    expect(0, "kiln cache merge " + text + " -o " + base + own_overlay(folder));
    serve("E2E_NO_CODE=1");
  }
  SUBCASE("as text, without candidates") {
    expect(0, "kiln cache export --text --no-candidates -o " + text + globals(folder));
    expect(0, "kiln cache merge " + text + " -o " + base + own_overlay(folder));
    serve("E2E_NO_CODE=1");
  }
  SUBCASE("for a workload, made with the library or without it") {
    const std::string workload = gemm_workload(folder);
    for (const std::string& where : {std::string(), no_library + " "}) {
      expect(0, where + "kiln prewarm " + workload + " -o " + base + globals(folder));
      serve("KILN_NVRTC_LIBRARY=none");
    }
    expect(0, "kiln cache export --replace --workload " + workload + " -o " + base + globals(folder));
    serve("KILN_NVRTC_LIBRARY=none");
  }
}

TEST_CASE("a dry replay without the library counts the machine code of the own kernel") {
  const TemporaryFolder folder;
  tune_in(folder);
  const std::string trace = (folder / "one.trace").string();
  std::ofstream(trace) << "gemm m=64 n=48 k=40 dtype=f32\n";
  const std::string device_class = value_of(expect(0, "kiln devices --json"), "device_class");
  const std::string replay =
      no_library + " KILN_CUDA_LIBRARY=none kiln replay --json --dry-run --device-class " + device_class + " " + trace;
  CHECK(contains(expect(0, replay + globals(folder)), R"("buckets_without_cubin":0,)"));
  const std::string base = (folder / "base.kiln").string();
  expect(0, "kiln cache export --no-cubins -o " + base + globals(folder));
  const std::string from_base = " --overlay " + (folder / "empty.kiln").string() + " --base " + base;
  CHECK(contains(expect(1, replay + from_base), R"("buckets_without_cubin":1,)"));
}

TEST_CASE("an export for a workload takes a record of which the library's choice can serve nowhere") {
  const TemporaryFolder folder;
  tune_in(folder);
  edit_records(folder, [](std::string& line) {
    const std::string winner = R"("implementation":"cublaslt")";
    const auto begin = line.find(winner);
    if (begin != std::string::npos) line.replace(begin, winner.size(), R"("implementation":"of_another_release")");
  });
  run_child("child: the own kernel serves", in_child(folder, "error", no_library) + " E2E_NO_CODE=1");  // keeps it
  const std::string workload = gemm_workload(folder), base = (folder / "base.kiln").string();
  const std::string said = expect(0, "kiln cache export --workload " + workload + " -o " + base + globals(folder));
  CHECK_MESSAGE(contains(said, "base.kiln: 1 record and "), said);
  run_child("child: the own kernel serves", variable("E2E_OVERLAY", folder / "empty.kiln") +
                                                variable("E2E_POLICY", "error") + no_library + " " +
                                                variable("E2E_BASE", base) + "KILN_NVRTC_LIBRARY=none");
}

TEST_CASE("a record of which nothing can serve is skipped where the library is missing") {
  const TemporaryFolder folder;
  tune_in(folder);
  edit_records(folder, [](std::string& line) {
    edit_choices(line, [](std::string& choice) {
      if (needs_no_library(choice)) set(choice, "config", "tile_m=7");  // not declared
    });
  });
  run_child("child: the record is unusable", in_child(folder, "nearest", no_library));
  run_child("child: nothing serves", in_child(folder, "error", no_library));
  run_child("child: the record is unusable", in_child(folder, "tune", no_library));
}

TEST_CASE("a choice without a library from other sources serves as stale, and has its bucket tuned again") {
  const TemporaryFolder folder;
  tune_in(folder);
  edit_records(folder, [](std::string& line) {
    edit_choices(line, [](std::string& choice) {
      if (!needs_no_library(choice)) return;
      const std::string name = R"("source_digest":")";
      choice.replace(choice.find(name) + name.size(), 8, "00000000");
    });
  });
  CHECK(contains(expect(0, "kiln explain gemm m=64 n=48 k=40 dtype=f32" + globals(folder)),
                 " us, tuned from other sources"));
  run_child("child: the own kernel serves", in_child(folder, "error", no_library) + " E2E_STALE=1 E2E_NO_CODE=1");
  const std::string tune = "kiln tune --stale --trials 5" + globals(folder);
  CHECK(contains(expect(0, tune), "1 of 1 record of this device is stale, 1 renewed"));
  run_child("child: the own kernel serves", in_child(folder, "error", no_library));
  CHECK(contains(expect(0, tune), "0 of 1 record of this device are stale"));
}

}  // namespace e2e

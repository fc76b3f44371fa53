// cuBLASLt as an implementation of gemm: tuned, kept, launched, and what the command says of it.
#include <thread>

#include "e2e/library_fixture.hpp"

namespace e2e {

using kiln::Engine;
using kiln::MissPolicy;
using kiln::Origin;

TEST_CASE("the library's algorithms are tried, verified, and the best one is the record") {
  const Machine machine;
  const TemporaryFolder folder;
  kiln::Options chosen = gemm_options(folder / "overlay.kiln");
  chosen.search.strategy = kiln::Strategy::exhaustive;
  std::map<std::string, std::string> verdicts;  // of the library's configs
  chosen.on_tune = [&](const kiln::TuneEvent& event) {
    if (event.kind == kiln::TuneEvent::Kind::candidate && event.implementation == "cublaslt")
      verdicts[std::string(event.config).substr(0, 11)] = event.verdict;
  };
  const Engine engine(chosen);
  const GemmCall call(engine);
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(call.launch(machine.stream()) == Origin::hot);
  const kiln::Plan plan = call.op.plan(call.problem);
  CHECK(plan.implementation() == "cublaslt");
  CHECK(plan.config() == fastest);
  CHECK(plan.workspace_bytes() == 2 * 64 * 48 * 4);
  CHECK(verdicts == std::map<std::string, std::string>{
                        {"algorithm=1", "ok"}, {"algorithm=3", "wrong_result"}, {"algorithm=4", "ok"}});
  const kiln::Explanation explanation = engine.explain(call.op, call.problem);
  CHECK(explanation.library == "cublaslt 13.0.0");
  CHECK(explanation.config == fastest);
  CHECK(query("launches vendor_matmul<4>") > 2);
}

TEST_CASE("a race tries what the library prefers, and a bias and an activation are the library's") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(gemm_options(folder / "overlay.kiln"));
  const GemmCall call(engine, 64, "relu");
  call.launch(machine.stream());
  CHECK(call.implementation() == "cublaslt");
  kiln::Arguments plain = call.arguments;
  plain.set(call.op.tensor("bias"), nullptr);
  call.poison();
  CHECK(call.op.launch(call.problem, plain, machine.stream()) == Origin::hot);
  call.check(64, false);
  CHECK(GemmCall(engine, 40, "relu").launch(machine.stream()) == Origin::hot);
  GemmCall(engine, 64, "gelu");  // another function than the library's
  CHECK(engine.op("gemm").plan(GemmCall(engine, 64, "silu").problem).implementation() == "simt");
}

TEST_CASE(
    "where machine code is missing the library serves, and the bucket's own takes its place when it is compiled") {
  const Machine machine;
  const TemporaryFolder folder;
  kiln::Options chosen = gemm_options(folder / "overlay.kiln", MissPolicy::nearest);
  chosen.isolation = kiln::Isolation::worker;
  chosen.worker = std::filesystem::path(KILN_COMMAND).parent_path() / "kiln-worker";
  chosen.compile_ahead = 1;
  const Engine engine(chosen);
  const GemmCall call(engine);
  const auto by_library = [] { return query("launches vendor_matmul<1>") + query("launches vendor_matmul<4>"); };
  const std::int64_t before = by_library();
  CHECK(call.launch(machine.stream()) == Origin::nearest);
  CHECK(by_library() == before + 1);
  CHECK(engine.stats().compiles - engine.stats().compiles_ahead == 0);
  REQUIRE(engine.wait_for_tunes(std::chrono::minutes(2)));
  call.launch(machine.stream());
  CHECK(call.implementation() == "simt");
  CHECK(by_library() == before + 1);
}

TEST_CASE("a factor of the product is the launch's own") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(gemm_options(folder / "overlay.kiln"));
  const GemmCall call(engine);
  call.launch(machine.stream());
  kiln::Arguments scaled = call.arguments;
  scaled.set(call.op.runtime("scale"), -2.5);
  call.poison();
  CHECK(call.op.launch(call.problem, scaled, machine.stream()) == Origin::hot);
  call.check(64, true, -2.5);
}

TEST_CASE("what is added to a product and scales of it are the library's where its order is the op's") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(gemm_options(folder / "overlay.kiln"));
  const kiln::Op op = engine.op("gemm");
  const auto winner = [&](const char* dtype, const char* name, const char* value, const char* activation) {
    const auto problem =
        op.problem({{"m", 64}, {"n", 48}, {"k", 48}, {"dtype", dtype}, {"activation", activation}, {name, value}});
    return std::string(op.plan(problem).implementation());  // verified against the reference
  };
  CHECK(winner("f32", "residual", "add", "none") == "cublaslt");
  CHECK(winner("f32", "accumulate", "yes", "none") == "cublaslt");
  CHECK(winner("e4m3", "scaling", "tensor", "relu") == "cublaslt");
  CHECK(winner("f32", "residual", "add", "relu") != "cublaslt");
  CHECK(winner("e4m3", "scaling", "row", "none") != "cublaslt");
}

TEST_CASE("no more candidates are brought in than asked for, whatever the library proposes inside the bucket") {
  const Machine machine;
  const TemporaryFolder folder;
  kiln::Options chosen = gemm_options(folder / "overlay.kiln");
  chosen.search.trials = 2;
  std::int64_t brought_in = 0;
  chosen.on_tune = [&](const kiln::TuneEvent& event) {
    brought_in += event.kind == kiln::TuneEvent::Kind::candidate ? 1 : 0;
  };
  REQUIRE(setenv("FAKE_CUBLASLT_TURNS", "1", 1) == 0);
  GemmCall(Engine(chosen)).launch(machine.stream());
  REQUIRE(unsetenv("FAKE_CUBLASLT_TURNS") == 0);
  CHECK(brought_in == 2);
}

TEST_CASE("the library is given every layout as it lies") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(gemm_options(folder / "overlay.kiln"));
  const kiln::Op op = engine.op("gemm");
  for (const char* layout : {"nn", "tn", "tt"}) {
    CAPTURE(layout);
    const auto problem = op.problem({{"m", 64}, {"n", 24}, {"k", 40}, {"dtype", "f32"}, {"layout", layout}});
    CHECK(op.plan(problem).implementation() == "cublaslt");  // verified against the reference
  }
}

TEST_CASE("a batch of products is the library's too, but not with a scale for each of them") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(gemm_options(folder / "overlay.kiln"));
  const kiln::Op op = engine.op("gemm_batched");
  const auto winner = [&](const char* dtype, const char* name, const char* value) {
    const auto problem = op.problem({{"batch", 3}, {"m", 32}, {"n", 24}, {"k", 48}, {"dtype", dtype}, {name, value}});
    return std::string(op.plan(problem).implementation());  // verified against the reference
  };
  for (const char* layout : {"nt", "nn", "tn", "tt"}) CHECK(winner("f32", "layout", layout) == "cublaslt");
  CHECK(winner("f32", "activation", "relu") == "cublaslt");
  CHECK(winner("f32", "residual", "add") == "cublaslt");
  CHECK(winner("f32", "accumulate", "yes") == "cublaslt");
  CHECK(winner("e4m3", "scaling", "tensor") != "cublaslt");
}

TEST_CASE("a thread without a context launches what the library computes") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(gemm_options(folder / "overlay.kiln"));
  const GemmCall call(engine);
  call.launch(machine.stream());
  call.poison();
  std::thread([&] { call.op.launch(call.problem, call.arguments, machine.stream()); }).join();
  call.check(64);
}

TEST_CASE("child: the record serves" * doctest::skip()) {
  const Machine machine;
  const Engine engine(gemm_child_options());
  const GemmCall call(engine);
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(call.launch(machine.stream()) == Origin::hot);
  CHECK(call.op.plan(call.problem).config() == fastest);
  CHECK(engine.stats().tunes + engine.stats().compiles == 0);
  CHECK(engine.stats().stale == (std::getenv("FAKE_CUBLASLT_VERSION") != nullptr ? 1 : 0));
}

TEST_CASE("a new process, even one without NVRTC, launches the algorithm that the record names") {
  const TemporaryFolder folder;
  tune_in(folder);
  run_child("child: the record serves", in_child(folder, "error", ""));
  run_child("child: the record serves", in_child(folder, "error", "KILN_NVRTC_LIBRARY=none"));
}

TEST_CASE("the command names the library, its version and its algorithm") {
  const TemporaryFolder folder;
  tune_in(folder);
  CHECK(contains(expect(0, "kiln doctor" + globals(folder)), "cuBLASLt: 13.0.0, "));
  CHECK(contains(expect(0, "KILN_CUBLASLT_LIBRARY=none kiln doctor" + globals(folder)), "absent  cuBLASLt: "));
  const std::string explained = expect(0, "kiln explain gemm m=50 n=48 k=40 dtype=f32" + globals(folder));
  CHECK(contains(explained, fastest));
  CHECK(contains(explained, "cublaslt 13.0.0"));
  CHECK(contains(explained, "cublasLtMatmul"));
  CHECK(contains(explained, "a length on the device, and what the library refuses, goes to simt "));
  const std::string missed = expect(0, no_library + " kiln explain gemm m=50 n=48 k=40 dtype=f32" + globals(folder));
  const std::string away = "KILN_CUDA_LIBRARY=none ";  // no device either
  for (const std::string& said :
       {missed, expect(0, away + no_library + " kiln explain gemm m=50 n=48 k=40 dtype=f32" + globals(folder))}) {
    CHECK_MESSAGE(contains(said, "answer         simt "), said);
    CHECK_MESSAGE(contains(said, "cublaslt, the fastest with "), said);
    CHECK_MESSAGE(contains(said,
                           " us, cannot serve (the library cublaslt is not here); this is the fastest of the same "
                           "tune without a library"),
                  said);
  }
  CHECK(contains(expect(0, "kiln cache ls --json" + globals(folder)), R"("without_library":"simt tile_m=)"));
  CHECK(contains(expect(0, "kiln ops gemm" + own_ops()), "where the library cublaslt is found"));
  expect(0, "kiln cache verify " + (folder / "overlay.kiln").string());
  expect(0, "kiln run gemm m=64 n=48 k=40 dtype=f32" + globals(folder));
}

}  // namespace e2e

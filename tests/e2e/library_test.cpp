// cuBLASLt as an implementation of gemm: tuned, kept, launched, captured, and passed over where it is missing or another one.
// tests/fake_cublaslt/cublaslt.cpp says what its four algorithms are.
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "e2e/command.hpp"
#include "e2e/graph.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;
using kiln::MissPolicy;
using kiln::Origin;

namespace {

constexpr const char* fastest =
    "algorithm=4 tile=24 stages=8 splits=2 reduction=2 swizzle=1 custom=7 inner=3 cluster=5 extra=0";

kiln::Options gemm_options(const std::filesystem::path& overlay, MissPolicy on_miss = MissPolicy::tune) {
  kiln::Options chosen = options(overlay, on_miss);
  chosen.search.trials = 5;  // the baseline, the library's first two, and two more
  return chosen;
}

/// y = scale x w^T + bias in f32, checked after each launch.
class GemmCall {
 public:
  static constexpr std::int64_t n = 48, k = 40, bound = 64;

  explicit GemmCall(const Engine& engine, std::int64_t m = bound, const char* activation = "none")
      : op(engine.op("gemm")),
        problem(op.problem({{"m", m}, {"n", n}, {"k", k}, {"dtype", "f32"}, {"activation", activation}})),
        rows_(m),
        relu_(activation == std::string_view("relu")) {
    arguments =
        op.arguments({{"x", x_.address()}, {"w", w_.address()}, {"bias", bias_.address()}, {"y", y_.address()}});
    poison();
  }
  Origin launch(kiln::Stream stream) const {
    poison();
    const Origin origin = op.launch(problem, arguments, stream);
    check(rows_);
    return origin;
  }
  void poison() const { y_.upload(std::vector<float>(bound * n, NAN)); }
  /// The rows up to `rows` are computed, the others are as they were.
  void check(std::int64_t rows, bool biased = true, double scale = 1) const {
    const std::vector<float> x = ramp(bound * k), w = ramp(n * k), bias = ramp(n), got = y_.download();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < bound * n; ++i) {
      const float value = got[static_cast<std::size_t>(i)];
      const std::int64_t row = i / n, column = i % n;
      double sum = biased ? static_cast<double>(bias[static_cast<std::size_t>(column)]) : 0;
      for (std::int64_t j = 0; j < k; ++j)
        sum += scale * static_cast<double>(x[static_cast<std::size_t>(row * k + j)]) *
               static_cast<double>(w[static_cast<std::size_t>(column * k + j)]);
      const double expected = relu_ && sum < 0 ? 0 : sum;
      const bool right = row < rows ? std::fabs(static_cast<double>(value) - expected) <= 1e-3 * (1 + std::fabs(sum))
                                    : std::isnan(value);
      wrong += right ? 0 : 1;
    }
    CAPTURE(rows);
    CHECK(wrong == 0);
  }
  [[nodiscard]] std::string implementation() const { return std::string(op.plan(problem).implementation()); }

  kiln::Op op;
  kiln::Problem problem;
  kiln::Arguments arguments;

 private:
  std::int64_t rows_;
  bool relu_;
  Floats x_{ramp(bound * k)}, w_{ramp(n * k)}, bias_{ramp(n)}, y_{static_cast<std::size_t>(bound * n)};
};

kiln::Options gemm_child_options() {
  const std::map<std::string, MissPolicy> policies = {
      {"tune", MissPolicy::tune}, {"nearest", MissPolicy::nearest}, {"error", MissPolicy::error}};
  kiln::Options chosen = gemm_options(std::getenv("E2E_OVERLAY"), policies.at(std::getenv("E2E_POLICY")));
  if (const char* base = std::getenv("E2E_BASE")) chosen.bases = {base};
  return chosen;
}

const std::string no_library = "KILN_CUBLASLT_LIBRARY=none";

std::string in_child(const TemporaryFolder& folder, const char* policy, const std::string& library) {
  return variable("E2E_OVERLAY", folder / "overlay.kiln") + variable("E2E_POLICY", policy) + library;
}

/// The records of the overlay, each line of their text as `edit` leaves it; without their machine code.
void edit_records(const TemporaryFolder& folder, const std::function<void(std::string&)>& edit) {
  const std::string text = (folder / "records.jsonl").string();
  expect(0, "kiln cache export --text -o " + text + globals(folder));
  std::ifstream read(text);
  std::string edited;
  for (std::string line; std::getline(read, line);) {
    edit(line);
    edited += line + "\n";
  }
  std::ofstream(text) << edited;
  std::filesystem::remove(folder / "overlay.kiln");
  expect(0, "kiln cache import " + text + globals(folder));
}

/// The one bucket that tune_in tunes.
std::string gemm_workload(const TemporaryFolder& folder) {
  std::string path = (folder / "workload.toml").string();
  std::ofstream(path)
      << "[[workload]]\nop = \"gemm\"\naxes = { m = 64, n = 48, k = 40 }\ntypes = { dtype = \"f32\" }\n";
  return path;
}

bool is_runner_up(const std::string& line) { return contains(line, " | without library\""); }

void tune_in(const TemporaryFolder& folder) {
  const Machine machine;
  const Engine engine(gemm_options(folder / "overlay.kiln"));
  const GemmCall call(engine);
  REQUIRE(call.launch(machine.stream()) == Origin::overlay);
  REQUIRE(call.implementation() == "cublaslt");
}

}  // namespace

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

TEST_CASE("a launch that the library cannot take is a hit of its runner-up") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(gemm_options(folder / "overlay.kiln"));
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

TEST_CASE("a runner-up that could not be made for a moment is tried again, and not by each launch") {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds first_pause{100};
  const TemporaryFolder folder;
  tune_in(folder);
  const Machine machine;
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::error));
  const GemmCall refused(engine, 37);
  const auto tries = [] { return query("calls cuModuleLoadDataEx"); };
  control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY");  // the runner-up's, then the default's is loaded
  CHECK(refused.launch(machine.stream()) == Origin::default_);
  control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY sticky");
  const auto begun = Clock::now();
  const std::int64_t before = tries();
  for (int i = 0; i < 100; ++i) refused.op.launch(refused.problem, refused.arguments, machine.stream());
  CHECK(tries() - before <= (Clock::now() - begun) / first_pause + 1);
  CHECK(engine.stats().constraint_fallbacks == 101);
  REQUIRE(engine.warnings().size() == 1);
  CHECK_MESSAGE(contains(engine.warnings()[0], "' is left out for now: "), engine.warnings()[0]);
  control("heal");
  Origin origin = Origin::default_;
  while (origin == Origin::default_ && Clock::now() - begun < std::chrono::seconds(30)) {
    std::this_thread::sleep_for(first_pause / 4);
    origin = refused.launch(machine.stream());
  }
  CHECK(origin == Origin::overlay);
  CHECK(refused.launch(machine.stream()) == Origin::hot);
}

TEST_CASE("a preparation tries the runner-up that could not be made for a moment at once") {
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

TEST_CASE("a runner-up that cannot be made is left alone") {
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
  CHECK_MESSAGE(contains(engine.warnings()[0], "' is left out: "), engine.warnings()[0]);
}

TEST_CASE("a graph captures the library's first launch, and a length on the device finds its runner-up ready") {
  const Machine machine;
  const TemporaryFolder folder;
  tune_in(folder);
  const Engine engine(gemm_options(folder / "overlay.kiln", MissPolicy::error));
  const GemmCall call(engine);
  CHECK(engine.prepare(call.op, {&call.problem, 1}, machine.stream()).hits == 1);
  const std::int64_t broken = query("broken"), unsafe = query("unsafe");
  const Floats length(std::vector<float>(1, 0.0F));
  kiln::Arguments on_device = call.arguments;
  on_device.set(call.op.axis("m"), static_cast<const std::int32_t*>(length.address()));
  const Graph graph(machine, Graph::global, [&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  const Graph other(machine, Graph::global,
                    [&] { CHECK(call.op.launch(call.problem, on_device, machine.stream()) == Origin::overlay); });
  CHECK(query("broken") == broken);
  CHECK(query("unsafe") == unsafe);
  call.poison();
  graph.replay();
  call.check(64);
  call.poison();
  other.replay();
  call.check(0);
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

TEST_CASE("child: the runner-up serves" * doctest::skip()) {
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
  CHECK((tunes ? origin == Origin::overlay : is_stand_in(origin)));
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

TEST_CASE("a new process, even one without NVRTC, launches the algorithm that the record names") {
  const TemporaryFolder folder;
  tune_in(folder);
  run_child("child: the record serves", in_child(folder, "error", ""));
  run_child("child: the record serves", in_child(folder, "error", "KILN_NVRTC_LIBRARY=none"));
}

TEST_CASE("another version of the library serves what it takes, as stale, and the runner-up the rest") {
  const TemporaryFolder folder;
  tune_in(folder);
  run_child("child: the record serves", in_child(folder, "error", "FAKE_CUBLASLT_VERSION=130102"));
  run_child("child: the runner-up serves",
            in_child(folder, "error", "FAKE_CUBLASLT_VERSION=130102 FAKE_CUBLASLT_WITHOUT=4"));
}

TEST_CASE("where the library is missing the runner-up is a hit, without NVRTC too") {
  const TemporaryFolder folder;
  tune_in(folder);
  for (const char* policy : {"error", "nearest", "tune"})
    run_child("child: the runner-up serves", in_child(folder, policy, no_library));
  run_child("child: the runner-up serves", in_child(folder, "error", no_library) + " KILN_NVRTC_LIBRARY=none");
}

TEST_CASE("a runner-up is shipped with its record and its machine code, in each form of a file") {
  const TemporaryFolder folder;
  tune_in(folder);
  const std::string base = (folder / "base.kiln").string(), text = (folder / "records.jsonl").string();
  const auto serve = [&](const std::string& more) {
    const std::string empty = variable("E2E_OVERLAY", folder / "empty.kiln") + variable("E2E_POLICY", "error");
    run_child("child: the runner-up serves", empty + no_library + " " + variable("E2E_BASE", base) + more);
  };
  SUBCASE("exported") {
    expect(0, "kiln cache export --no-candidates -o " + base + globals(folder));
    serve("KILN_NVRTC_LIBRARY=none");
  }
  SUBCASE("as text, with candidates") {
    expect(0, "kiln cache export --text -o " + text + globals(folder));
    expect(0, "kiln cache merge " + text + " -o " + base + globals(folder));
    serve("E2E_NO_CODE=1");
  }
  SUBCASE("as text, without candidates") {
    expect(0, "kiln cache export --text --no-candidates -o " + text + globals(folder));
    expect(0, "kiln cache merge " + text + " -o " + base + globals(folder));
    serve("E2E_NO_CODE=1");
  }
  SUBCASE("for a workload, made with the library or without it") {
    const std::string workload = gemm_workload(folder);
    for (const std::string& where : {std::string(), no_library + " "}) {
      expect(0, where + "kiln prewarm " + workload + " -o " + base + globals(folder));
      serve("KILN_NVRTC_LIBRARY=none");
    }
    expect(0, "kiln cache export --force --workload " + workload + " -o " + base + globals(folder));
    serve("KILN_NVRTC_LIBRARY=none");
  }
}

TEST_CASE("an export for a workload takes the runner-up whose record can serve nowhere") {
  const TemporaryFolder folder;
  tune_in(folder);
  edit_records(folder, [](std::string& line) {
    const std::string winner = R"("implementation":"cublaslt")";
    const auto begin = line.find(winner);
    if (begin != std::string::npos) line.replace(begin, winner.size(), R"("implementation":"of_another_release")");
  });
  run_child("child: the runner-up serves", in_child(folder, "error", no_library) + " E2E_NO_CODE=1");  // keeps it
  const std::string workload = gemm_workload(folder), base = (folder / "base.kiln").string();
  const std::string said = expect(0, "kiln cache export --workload " + workload + " -o " + base + globals(folder));
  CHECK_MESSAGE(contains(said, " holds 2 records and "), said);
  run_child("child: the runner-up serves", variable("E2E_OVERLAY", folder / "empty.kiln") +
                                               variable("E2E_POLICY", "error") + no_library + " " +
                                               variable("E2E_BASE", base) + "KILN_NVRTC_LIBRARY=none");
}

TEST_CASE("a record without a runner-up is passed over where the library is missing") {
  const TemporaryFolder folder;
  tune_in(folder);
  edit_records(folder, [](std::string& line) {
    if (is_runner_up(line)) line.clear();
  });
  run_child("child: the record is unusable", in_child(folder, "nearest", no_library));
  run_child("child: nothing serves", in_child(folder, "error", no_library));
  run_child("child: the record is unusable", in_child(folder, "tune", no_library));
}

TEST_CASE("a runner-up from other sources serves as stale, and has its bucket tuned again") {
  const TemporaryFolder folder;
  tune_in(folder);
  edit_records(folder, [](std::string& line) {
    if (!is_runner_up(line)) return;
    const std::string name = R"("source_digest":")";
    line.replace(line.find(name) + name.size(), 8, "00000000");
  });
  CHECK(contains(expect(0, "kiln explain gemm m=64 n=48 k=40 dtype=f32" + globals(folder)),
                 " us, tuned from other sources"));
  run_child("child: the runner-up serves", in_child(folder, "error", no_library) + " E2E_STALE=1 E2E_NO_CODE=1");
  const std::string tune = "kiln tune --stale --trials 5" + globals(folder);
  CHECK(contains(expect(0, tune), "1 of 1 records of this device are stale, 1 renewed"));
  run_child("child: the runner-up serves", in_child(folder, "error", no_library));
  CHECK(contains(expect(0, tune), "0 of 1 records of this device are stale"));
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
    CHECK_MESSAGE(contains(said, "the record's runner-up serves: cublaslt won with "), said);
    CHECK_MESSAGE(contains(said,
                           " us and cannot serve (the library cublaslt is not here); this is the fastest of the "
                           "same tune without a library"),
                  said);
  }
  CHECK(contains(expect(0, "kiln cache ls" + globals(folder)), ", without a library"));
  CHECK(contains(expect(0, "kiln ops gemm" + globals(folder)), "where the library cublaslt is found"));
  expect(0, "kiln cache verify " + (folder / "overlay.kiln").string() + globals(folder));
  expect(0, "kiln run gemm m=64 n=48 k=40 dtype=f32" + globals(folder));
}

TEST_CASE(
    "a bucket of the library's is split where the algorithm is refused: there the default is what there is to beat") {
  const TemporaryFolder folder;
  const std::string said = expect(
      0, "kiln tune gemm m=64 n=48 k=40 dtype=f32 --refine --splits 5 --json" + globals(folder));  // 58, 53, 48, 42, 37
  CHECK_MESSAGE(contains(said, R"("outcome":"split","axis":"m","low":33,"edge":37)"), said);
  CHECK_FALSE(contains(said, R"("lower":"cublaslt algorithm=4)"));
  CHECK_FALSE(contains(said, R"("edge_gain":0.0})"));
  CHECK(contains(expect(0, "kiln explain gemm m=38 n=48 k=40 dtype=f32" + globals(folder)), fastest));
}

}  // namespace e2e

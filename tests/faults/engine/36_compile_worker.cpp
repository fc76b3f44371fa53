// A compile that crashes its worker process, never ends there or takes all memory, and a worker that somebody kills: that candidate is lost and
// told, the pool refills, and the others go on.
#include "faults/engine/verdicts.hpp"
#include "faults/engine/workers.hpp"

namespace kiln::faults {
namespace {

std::string failure_of(const std::shared_future<jit::Cubin>& future) {
  const Error error = error_of([&] { future.get(); });
  CHECK(error.kind() == ErrorKind::compile_failed);
  return error.what();
}

/// A tune of `scale` with these edits, its compiles in workers: `lost` candidates fail alone, with one of the reasons `said`, and seven
/// without them serve.
void check_tune(const CopiedOp& op, const TemporaryFolder& folder, std::int64_t memory_bytes, std::size_t lost,
                std::initializer_list<const char*> said) {
  const Machine machine;
  const OwnWorker worker;
  Verdicts verdicts;
  Options chosen = watched(op.options(folder / "overlay.kiln"), verdicts);
  chosen.worker = worker.path;
  chosen.compile_memory_bytes = memory_bytes;
  const Engine engine(chosen);
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(verdicts.good >= 5);
  REQUIRE(verdicts.rejected.size() == lost);
  for (const std::string& rejected : verdicts.rejected) {
    CHECK_MESSAGE(contains(rejected, "compile_failed: compiling scale/"), rejected);
    CHECK_MESSAGE(std::any_of(said.begin(), said.end(), [&](const char* each) { return contains(rejected, each); }),
                  rejected);
  }
  const store::Record record = records_of(folder / "overlay.kiln").at(0);
  CHECK(std::count_if(record.candidates.begin(), record.candidates.end(), [](const store::TriedCandidate& each) {
          return each.verdict == store::Verdict::compile_failed && !each.reason.empty();
        }) == static_cast<std::ptrdiff_t>(lost));
  tally(36, static_cast<std::int64_t>(lost), "candidates lost with the compile worker that they broke");
}

}  // namespace

TEST_CASE("fault 36: a template that crashes the compiler is rejected alone, and the others tune on") {
  // NVRTC 13.0 reads an illegal address for the missing `typename`; one that does not refuses the template, or takes it.
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  std::string source = read(op.root() / "scale/scale.cuh");
  const std::string kernel = "template <typename T>\n__global__ __launch_bounds__(32) void scale_copy(const T* x";
  source.replace(source.find(kernel), kernel.size(),
                 "template <bool> struct Must;\ntemplate <> struct Must<true> { using type = float; };\n"
                 "template <typename T> __global__ void scale_copy(Must<sizeof(T) != 8>::type* x");
  op.add("crash.cuh", source);
  std::string manifest = read(op.root() / "scale/plain.toml");
  op.add("crash.toml", manifest.replace(manifest.find("scale.cuh"), 9, "crash.cuh"));
  check_tune(
      op, folder, std::int64_t{4} << 30, 1,
      {"the compiler was ended by signal 11 (Segmentation fault)", "the compiler ended with status 1", "typename"});
}

TEST_CASE("fault 36: a template that takes all memory is rejected alone at the limit of its worker") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  op.edit("scale.cuh", "template <typename T, int Threads, int Vector>",
          "template <int Depth, int At> struct Bomb { static constexpr long long value = "
          "Bomb<Depth - 1, At * 2>::value + Bomb<Depth - 1, At * 2 + 1>::value; };\n"
          "template <int At> struct Bomb<0, At> { static constexpr long long value = At; };\n"
          "template <typename T, int Threads, int Vector>");
  op.edit("scale.cuh", "  for (long long i = threadIdx.x * Vector;",
          "  static_assert(Bomb<Threads == 128 ? 24 : 0, 1>::value != 0);\n  for (long long i = threadIdx.x * Vector;");
  check_tune(op, folder, std::int64_t{768} << 20, 2, {"the compiler ran out of its memory limit"});
}

TEST_CASE("child: a compile crashes its worker" * doctest::skip()) {
  const OwnWorker worker;
  jit::CompilePool pool({.workers = 2, .program = worker.path});
  std::vector<std::shared_future<jit::Cubin>> good;
  const auto bad = compile_of({128, 4}).in(pool);
  for (const manifest::Config& config : {manifest::Config{64, 1}, {64, 4}, {256, 1}, {256, 4}})
    good.push_back(compile_of(config).in(pool));
  CHECK(contains(failure_of(bad), "for sm_90a failed: the compiler was ended by signal 11 (Segmentation fault)"));
  for (const auto& each : good) CHECK(each.get().image.size() > 0);
  CHECK(contains(failure_of(compile_of({128, 4}).in(pool)), "signal 11"));  // remembered, not tried again
  CHECK(pool.compiled() == 5);
}

TEST_CASE("child: a compile never ends in its worker" * doctest::skip()) {
  const OwnWorker worker;
  jit::CompilePool pool({.workers = 1, .program = worker.path, .limit = std::chrono::seconds(3)});
  CHECK(compile_of({64, 1}).in(pool).get().image.size() > 0);
  CHECK(contains(failure_of(compile_of({128, 4}).in(pool)), "was not done after 3 s, and was stopped"));
  CHECK(compile_of({64, 4}).in(pool).get().image.size() > 0);
  CHECK(processes_of(worker.path).size() == 1);
}

TEST_CASE("child: a worker is killed in the middle of a compile" * doctest::skip()) {
  const OwnWorker worker;
  jit::CompilePool pool({.workers = 1, .program = worker.path});
  const auto killed = compile_of({128, 4}).in(pool);
  for (pid_t before = 0, now = 0; const char* which : {"the first", "and the one that takes its place"}) {
    CAPTURE(which);
    for (int waits = 0; waits < 1500 && (now == 0 || now == before); ++waits) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const auto all = processes_of(worker.path);
      now = all.size() == 1 ? all.front() : 0;
    }
    REQUIRE(now != before);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // it compiles by now; where it does not, it dies of the same
    before = now;
    kill(now, SIGKILL);
  }
  CHECK_MESSAGE(contains(failure_of(killed), "signal 9 (Killed)"), failure_of(killed));
  CHECK(compile_of({64, 4}).in(pool).get().image.size() > 0);
}

TEST_CASE("child: a pool ends while a compile does not" * doctest::skip()) {
  const OwnWorker worker;
  std::shared_future<jit::Cubin> under_way;
  int failures = 0;  // that a log would show
  {
    jit::CompilePool pool(
        {.workers = 1, .program = worker.path, .on_end = [&](const jit::CompileEnd&) { ++failures; }});
    under_way = compile_of({128, 4}).in(pool);
    REQUIRE(test::wait_for_processes(worker.path, 1) == 1);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  CHECK(error_of([&] { under_way.get(); }).kind() == ErrorKind::interrupted);
  CHECK(failures == 0);
  CHECK(processes_of(worker.path).empty());
}

TEST_CASE("child: an owner waits for a compile that never ends" * doctest::skip()) {
  jit::CompilePool pool({.workers = 1, .program = std::getenv("KILN_WORKER")});
  compile_of({128, 4}).in(pool).wait();
}

TEST_CASE("fault 36: a compile that crashes its worker is told and remembered, and the pool refills") {
  run_child("child: a compile crashes its worker", under_faulty_nvrtc("crash 100 scale_tiled<float, 128"));
  tally(36, 1, "compiles that crash their worker");
}

TEST_CASE("fault 36: a compile that never ends is stopped after its time, and the pool refills") {
  run_child("child: a compile never ends in its worker", under_faulty_nvrtc("hang 100 scale_tiled<float, 128"));
  tally(36, 1, "compiles that never end");
}

TEST_CASE("fault 36: a worker that is killed in the middle of a compile costs that compile alone") {
  run_child("child: a worker is killed in the middle of a compile",
            under_faulty_nvrtc("hang 100 scale_tiled<float, 128"));
  tally(36, 1, "workers killed in the middle of a compile");
}

TEST_CASE("fault 36: a worker that is stopped by a signal is late, and is replaced") {
  const OwnWorker worker;
  jit::CompilePool pool({.workers = 1, .program = worker.path, .limit = std::chrono::seconds(10)});
  CHECK(compile_of({64, 1}).in(pool).get().image.size() > 0);
  test::signal_processes(worker.path, SIGSTOP);
  CHECK(contains(failure_of(compile_of({128, 4}).in(pool)), "was not done after 10 s"));
  CHECK(compile_of({64, 4}).in(pool).get().image.size() > 0);
  tally(36, 1, "workers stopped by a signal");
}

TEST_CASE("fault 36: a pool that ends, or an owner that is killed, leaves no compile running") {
  run_child("child: a pool ends while a compile does not", under_faulty_nvrtc("hang 100 scale_tiled<float, 128"));
  const OwnWorker worker;
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  shell(under_faulty_nvrtc("hang 100 scale_tiled") + variable("KILN_WORKER", worker.path) + "timeout -s KILL 3 '" +
        self + "' --no-skip '--test-case=child: an owner waits*'");
  CHECK(test::wait_for_processes(worker.path, 0) == 0);
  tally(36, 2, "compiles under way whose owner went");
}

}  // namespace kiln::faults

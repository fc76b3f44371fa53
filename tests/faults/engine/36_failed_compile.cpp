// Compiles that fail, each in its own way: the candidate is lost and told, the pool and the other candidates go on.
#include "faults/engine/verdicts.hpp"
#include "jit/compile_pool.hpp"

namespace kiln::faults {
namespace {

/// A tune of `scale` in which the compiles of `threads=128` fail as the library was told; 2 of 7 candidates.
void check_tune_without_128_threads(const char* said) {
  const Machine machine;
  const TemporaryFolder folder;
  Verdicts verdicts;
  const Engine engine(watched(e2e::options(folder / "overlay.kiln"), verdicts));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(verdicts.good == 5);
  REQUIRE(verdicts.rejected.size() == 2);
  for (const std::string& rejected : verdicts.rejected) {
    CHECK_MESSAGE(contains(rejected, "threads=128 vector="), rejected);
    CHECK_MESSAGE(contains(rejected, "compile_failed: "), rejected);
    CHECK_MESSAGE(contains(rejected, said), rejected);
  }
  CHECK(!contains(verdicts.winner, "threads=128"));
  CHECK(engine.stats().tunes == 1);
  // The record keeps the reasons, for `kiln cache show`.
  std::int64_t kept = 0;
  const store::Record record = records_of(folder / "overlay.kiln").at(0);
  for (const store::TriedCandidate& candidate : record.candidates)
    kept += candidate.verdict == store::Verdict::compile_failed && contains(candidate.reason, said) ? 1 : 0;
  CHECK(kept == 2);
}

}  // namespace

TEST_CASE("fault 36: templates that do not compile, or may not be compiled, fail alone with the reason") {
  const Machine machine;
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  op.edit("scale.cuh", "  for (long long i = threadIdx.x * Vector;",
          "  static_assert(Threads != 128, \"no blocks of 128\");\n  for (long long i = threadIdx.x * Vector;");
  op.add("evil.cuh", "#include \"/etc/passwd\"\n");
  std::string evil = read(op.root() / "scale/plain.toml");
  op.add("evil.toml", evil.replace(evil.find("scale.cuh"), 9, "evil.cuh"));
  Verdicts verdicts;
  const Engine engine(watched(op.options(folder / "overlay.kiln"), verdicts));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(verdicts.good == 5);
  CHECK(!contains(verdicts.winner, "threads=128"));
  std::int64_t failed = 0, refused = 0;
  for (const std::string& rejected : verdicts.rejected) {
    failed += contains(rejected, "threads=128") && contains(rejected, "compile_failed: ") &&
                      contains(rejected, "no blocks of 128")
                  ? 1
                  : 0;
    refused += contains(rejected, "compile_failed: ") && contains(rejected, "evil.cuh(1)") ? 1 : 0;
    CHECK_FALSE(contains(rejected, "root:"));
  }
  CHECK(failed == 2);
  CHECK(refused == 1);
  tally(36, failed + refused, "candidates whose source does not compile");
}

TEST_CASE("child: the compiler is out of memory" * doctest::skip()) { check_tune_without_128_threads("OUT_OF_MEMORY"); }
TEST_CASE("child: the compiler fails within" * doctest::skip()) { check_tune_without_128_threads("INTERNAL_ERROR"); }
TEST_CASE("child: the compile throws" * doctest::skip()) { check_tune_without_128_threads("bad_alloc"); }

TEST_CASE("child: the compiler fails once" * doctest::skip()) {
  jit::CompilePool pool(1);
  const jit::Specialisation specialisation = specialisation_of(scale_op(), "tiled", {128, 4});
  const manifest::Digest key = jit::cubin_key(specialisation, jit::compiler_identity());
  const auto first = pool.submit(key, specialisation);
  CHECK(error_of([&] { first.get(); }).kind() == ErrorKind::out_of_memory);
  CHECK(pool.submit(key, specialisation).get().lowered_names.size() == 1);
  CHECK(pool.compiled() == 2);
}

TEST_CASE("fault 36: a compiler out of memory, broken within or throwing fails that candidate alone") {
  // In threads of the tuning process, and in workers.
  for (const char* worker : {"none", KILN_WORKER_PROGRAM}) {
    const std::string where = variable("KILN_WORKER", worker);
    run_child("child: the compiler is out of memory", where + under_faulty_nvrtc("memory 100 scale_tiled<float, 128"));
    run_child("child: the compiler fails within", where + under_faulty_nvrtc("internal 100 scale_tiled<float, 128"));
    run_child("child: the compile throws", where + under_faulty_nvrtc("throw 100 scale_tiled<float, 128"));
    tally(36, 6, "candidates whose compile ends in an error or an exception of the compiler");
  }
}

TEST_CASE("fault 36: what failed for the compiler's sake is compiled when it is asked for again") {
  run_child("child: the compiler fails once", under_faulty_nvrtc("memory 1 scale_tiled"));
  tally(36, 1, "compiles that fail once");
}

TEST_CASE("child: a record whose machine code cannot be compiled" * doctest::skip()) {
  const Machine machine;
  const Engine engine(e2e::options(std::getenv("KILN_CACHE"), MissPolicy::error));
  const ScaleCall call(engine, 64, 128);
  const Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  CHECK(error.kind() == ErrorKind::out_of_memory);
  CHECK(contains(error.what(), "scale/tiled threads=128 vector=4"));
  CHECK(call.launch(machine.stream()) == Origin::overlay);  // the compiler fails once
}

TEST_CASE("fault 36: a launch whose machine code fails to compile says which, and the next one tries again") {
  const TemporaryFolder folder;
  const fs::path overlay = folder / "overlay.kiln";  // without machine code
  store::File::open(overlay, store::Access::read_write)->put_all(records_of(tuned_file()), {});
  run_child("child: a record whose machine code cannot be compiled",
            under_faulty_nvrtc("memory 1 scale_tiled") + variable("KILN_CACHE", overlay));
  tally(36, 1, "launches whose compile fails once");
}

}  // namespace kiln::faults

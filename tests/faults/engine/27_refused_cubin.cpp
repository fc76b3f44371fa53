// Machine code whose digest holds and which the driver refuses all the same.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE("fault 27: a stored cubin that the driver refuses is compiled once more, then served") {
  std::int64_t cases = 0;
  for (const char* code :
       {"CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_NOT_FOUND"}) {
    CAPTURE(std::string(code));
    const Machine machine;
    const TemporaryFolder folder;
    const fs::path overlay = tuned_overlay(folder);
    control(std::string("fail cuModuleLoadDataEx ") + code);
    const Engine engine(e2e::options(overlay, MissPolicy::error));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().compiles == 1);
    CHECK(engine.stats().tunes == 0);
    CHECK(engine.stats().quarantined == 1);
    CHECK(engine.stats().misses.refused_cubin == 1);
    CHECK(engine.stats().misses.no_cubin == 0);
    const Engine again(e2e::options(overlay, MissPolicy::error));
    CHECK(ScaleCall(again, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(again.stats().compiles == 0);
    ++cases;
  }
  tally(27, cases, "codes by which a driver refuses a module once");
}

TEST_CASE("fault 27: a cubin that is no longer what was compiled, under a right digest, is compiled once more") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  {
    const auto file = store::File::open(overlay, store::Access::read_write);
    auto row =
        file->find_cubin(jit::cubin_key(specialisation_of(scale_op(), "tiled", {128, 4}), jit::compiler_identity()));
    REQUIRE(row);
    std::fill(row->image.begin() + 64, row->image.end(), std::byte{0x5a});
    file->put_all({}, {&*row, 1}, store::Existing::replace);
  }
  const Engine engine(e2e::options(overlay, MissPolicy::error));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().compiles == 1);
  CHECK(engine.stats().misses.refused_cubin == 1);
  tally(27, 1, "images that are no machine code");
}

TEST_CASE("fault 27: a driver that refuses every module gives an error that names the kernel, and the file stays") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  control("fail cuModuleLoadDataEx CUDA_ERROR_INVALID_IMAGE sticky");
  const Engine engine(e2e::options(overlay));
  const ScaleCall call(engine, 64, 128);
  std::int64_t cases = 0;
  for (int attempt = 0; attempt < 3; ++attempt, ++cases) {
    const Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
    CHECK(error.kind() == ErrorKind::driver_failed);
    CHECK(contains(error.what(), "scale/tiled threads=128 vector=4"));
    CHECK(contains(error.what(), "CUDA_ERROR_INVALID_IMAGE"));
  }
  CHECK(engine.stats().tunes == 0);
  control("heal");
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  tally(27, cases, "launches under a driver that refuses every module");
}

TEST_CASE("child: a refused cubin without NVRTC" * doctest::skip()) {
  const Machine machine;
  const Engine engine(e2e::options(std::getenv("KILN_CACHE")));
  const ScaleCall call(engine, 64, 128);
  const Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  CHECK(error.kind() == ErrorKind::driver_failed);
  CHECK(contains(error.what(), "scale/tiled threads=128 vector=4"));
  CHECK(engine.stats().misses.refused_cubin == 1);
}

TEST_CASE("fault 27: where nothing can be compiled, a refused cubin is an error that names it") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  run_child("child: a refused cubin without NVRTC",
            "KILN_NVRTC_LIBRARY=none FAKE_CUDA='fail cuModuleLoadDataEx CUDA_ERROR_INVALID_IMAGE sticky' " +
                variable("KILN_CACHE", overlay));
  tally(27, 1, "refused modules without NVRTC");
}

}  // namespace kiln::faults

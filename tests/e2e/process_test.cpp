// What only a process of its own can show: libraries that are absent from the start, and restarts.
#include "e2e/command.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;
using kiln::MissPolicy;
using kiln::Origin;

namespace {

kiln::Options child_options(MissPolicy on_miss) {
  kiln::Options chosen = options("", on_miss);
  if (const char* overlay = std::getenv("E2E_OVERLAY")) chosen.overlay = overlay;
  if (const char* base = std::getenv("E2E_BASE")) chosen.bases = {base};
  return chosen;
}

}  // namespace

TEST_CASE("child: every length is served from the file" * doctest::skip()) {
  const Machine machine;
  const Engine engine(child_options(MissPolicy::error));
  const Origin expected = std::getenv("E2E_BASE") != nullptr ? Origin::base : Origin::overlay;
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == expected);
  for (std::int64_t rows = 33; rows <= 64; ++rows)
    CHECK(ScaleCall(engine, rows, 100).launch(machine.stream()) == Origin::hot);
  CHECK(ScaleCall(engine, 64, 99).launch(machine.stream()) == Origin::default_);  // breaks the winner's constraint
  CHECK(engine.stats().tunes == 0);
  CHECK(engine.stats().compiles == 0);
}

TEST_CASE("child: a tune without NVRTC" * doctest::skip()) {
  const Machine machine;
  const Engine engine(child_options(MissPolicy::tune));
  const ScaleCall call(engine, 64, 128);
  CHECK(error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); }).kind() ==
        ErrorKind::no_nvrtc);
}

TEST_CASE("child: no driver" * doctest::skip()) {
  const kiln::Error error = error_of([] { const Engine engine(child_options(MissPolicy::tune)); });
  CHECK(error.kind() == ErrorKind::no_driver);
  CHECK(std::string_view(error.what()).size() > 20);
}

TEST_CASE("child: no device" * doctest::skip()) {
  CHECK(error_of([] { const Engine engine(child_options(MissPolicy::tune)); }).kind() == ErrorKind::no_device);
}

TEST_CASE("child: no such device" * doctest::skip()) {
  kiln::Options chosen = child_options(MissPolicy::tune);
  chosen.device = 3;
  CHECK(error_of([&] { const Engine engine(chosen); }).kind() == ErrorKind::no_device);
}

TEST_CASE("a new process, even one without NVRTC, serves every length from the overlay") {
  const TemporaryFolder folder;
  {
    const Machine machine;
    const Engine engine(options(folder / "overlay.kiln"));
    ScaleCall(engine, 64, 128).launch(machine.stream());
    ScaleCall(engine, 64, 99).launch(machine.stream());
  }
  run_child("child: every length is served from the file", variable("E2E_OVERLAY", folder / "overlay.kiln"));
  run_child("child: every length is served from the file",
            variable("E2E_OVERLAY", folder / "overlay.kiln") + "KILN_NVRTC_LIBRARY=none");
}

TEST_CASE("an exported file alone, with NVRTC hidden, serves every length as a base") {
  const TemporaryFolder folder;
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + globals(folder));
  expect(0, "kiln cache export -o " + (folder / "base.kiln").string() + globals(folder));
  run_child("child: every length is served from the file",
            variable("E2E_BASE", folder / "base.kiln") + "KILN_NVRTC_LIBRARY=none");
}

TEST_CASE("an absent library or device is an error of its own kind") {
  run_child("child: a tune without NVRTC", "KILN_NVRTC_LIBRARY=none");
  run_child("child: no driver", "KILN_CUDA_LIBRARY=none");
  run_child("child: no driver", "KILN_CUDA_LIBRARY=/nonexistent/libcuda.so.1");
  run_child("child: no device", "FAKE_CUDA='devices 0'");
  run_child("child: no such device", "FAKE_CUDA='devices 2'");
}

}  // namespace e2e

// Streams of other contexts, streams that are no more, a device that was reset, and objects that outlive their engine.
#include <optional>
#include <thread>

#include "e2e/engine_fixture.hpp"
#include "e2e/library_fixture.hpp"

namespace e2e {

using kiln::Engine;
using kiln::Error;
using kiln::ErrorKind;
using kiln::MissPolicy;

namespace {

void launch_on(const ScaleCall& call, kiln::Stream stream) { call.op.launch(call.problem, call.arguments, stream); }

/// A second device, with a stream.
class OtherDevice {
 public:
  OtherDevice() {
    control("devices 2");
    REQUIRE(driver_call<CUctx_st**, int>("cuDevicePrimaryCtxRetain", &context_, 1) == 0);
    REQUIRE(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", context_) == 0);
    REQUIRE(driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &stream_, 1U) == 0);
    REQUIRE(driver_call<CUctx_st**>("cuCtxPopCurrent_v2", nullptr) == 0);
  }
  ~OtherDevice() {
    driver_call<int>("cuDevicePrimaryCtxRelease_v2", 1);
    control("devices 1");
  }
  OtherDevice(const OtherDevice&) = delete;
  OtherDevice& operator=(const OtherDevice&) = delete;
  [[nodiscard]] kiln::Stream stream() const noexcept { return stream_; }
  [[nodiscard]] CUctx_st* context() const noexcept { return context_; }

 private:
  CUctx_st* context_ = nullptr;
  kiln::Stream stream_ = nullptr;
};

void check_foreign(const Error& error) {
  CHECK(error.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(contains(error.what(), "of device 1"), std::string(error.what()));
}

}  // namespace

TEST_CASE("a stream of another device is refused with whose it is, by hits, misses and what makes ready") {
  const Machine machine;
  const OtherDevice other;
  const Engine engine(options("", MissPolicy::nearest));
  const ScaleCall call(engine, 64, 128), missed(engine, 256, 128);
  call.launch(machine.stream());
  check_foreign(error_of([&] { launch_on(call, other.stream()); }));
  std::thread([&] { check_foreign(error_of([&] { launch_on(call, other.stream()); })); }).join();  // no current context
  check_foreign(error_of([&] { launch_on(missed, other.stream()); }));
  check_foreign(error_of([&] { static_cast<void>(missed.op.plan(missed.problem, other.stream())); }));
  const std::vector<kiln::Problem> problems = {missed.problem};
  check_foreign(error_of([&] { engine.prepare(missed.op, problems, other.stream()); }));
  check_foreign(error_of([&] { static_cast<void>(engine.check(other.stream())); }));
  call.launch(machine.stream());
}

TEST_CASE("the null stream stays the default one of the engine's device, whichever context is current") {
  const Machine machine;
  const OtherDevice other;
  const Engine engine(options("", MissPolicy::nearest));
  const ScaleCall call(engine, 64, 128), missed(engine, 256, 128);
  call.launch(nullptr);
  call.poison();
  missed.poison();
  REQUIRE(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", other.context()) == 0);
  launch_on(call, nullptr);
  launch_on(missed, nullptr);
  REQUIRE(driver_call<CUctx_st**>("cuCtxPopCurrent_v2", nullptr) == 0);
  call.check();
  missed.check();
}

TEST_CASE("a plan with a workspace is launched on each stream, whichever context is current") {
  const Machine machine;
  const OtherDevice other;
  control("kernel wrong scale_tiled");  // so that the implementation with a workspace wins
  const Engine engine(options(""));
  const ScaleCall call(engine, 64, 128);
  REQUIRE(call.op.plan(call.problem, machine.stream()).implementation() == "plain");
  const auto per_thread = reinterpret_cast<kiln::Stream>(std::uintptr_t{2});
  for (kiln::Stream stream : {machine.stream(), kiln::Stream{nullptr}, per_thread}) {
    call.poison();
    REQUIRE(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", other.context()) == 0);
    for (int i = 0; i < 3; ++i) launch_on(call, stream);
    REQUIRE(driver_call<CUctx_st**>("cuCtxPopCurrent_v2", nullptr) == 0);
    call.check();
  }
}

TEST_CASE("each device of a process has the library's handle of its own") {
  const Machine machine;
  const OtherDevice other;
  const Engine first(gemm_options(""));
  const GemmCall on_first(first);
  on_first.launch(machine.stream());
  REQUIRE(on_first.implementation() == "cublaslt");
  kiln::Options chosen = gemm_options("");
  chosen.device = 1;
  const Engine second(chosen);
  const GemmCall on_second(second);
  on_second.launch(other.stream());  // while device 0 is current
  CHECK(on_second.implementation() == "cublaslt");
  on_second.poison();
  on_second.op.launch(on_second.problem, on_second.arguments, nullptr);
  on_second.check(64);
}

TEST_CASE("a stream that was destroyed is named as one that the driver does not know") {
  const Machine machine;
  const Engine engine(options("", MissPolicy::nearest));
  const ScaleCall call(engine, 64, 128), missed(engine, 256, 128);
  call.launch(machine.stream());
  kiln::Stream gone = nullptr;
  REQUIRE(driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &gone, 1U) == 0);
  REQUIRE(driver_call<kiln::Stream>("cuStreamDestroy_v2", gone) == 0);
  for (const ScaleCall* each : {&call, &missed}) {
    const Error error = error_of([&] { launch_on(*each, gone); });
    CHECK(error.kind() == ErrorKind::bad_input);
    CHECK(contains(error.what(), "does not know the stream"));
    const Error of_plan = error_of([&] { static_cast<void>(each->op.plan(each->problem, gone)); });
    CHECK(of_plan.kind() == ErrorKind::bad_input);
    CHECK(contains(of_plan.what(), "does not know the stream"));
  }
}

TEST_CASE("plans of a device that was reset are refused, their engine ends in peace, and the next one serves") {
  const Machine machine;
  control("kernel wrong scale_tiled");  // so that there are workspaces to give back
  std::optional<Engine> engine(options(""));
  {
    const ScaleCall call(*engine, 64, 128);
    const kiln::Plan plan = call.op.plan(call.problem, nullptr);
    call.launch(nullptr);
    REQUIRE(driver_call<int>("cuDevicePrimaryCtxReset_v2", 0) == 0);
    for (int i = 0; i < 2; ++i) {
      const Error error = error_of([&] { plan.launch(call.problem, call.arguments, nullptr); });
      CHECK(error.kind() == ErrorKind::driver_failed);
      CHECK(contains(error.what(), "make a new Engine"));
    }
  }
  engine.reset();
  const Engine next(options(""));
  ScaleCall(next, 64, 128).launch(nullptr);
}

TEST_CASE("plans and ops serve after their engine, after what they were copied from, and after they were moved from") {
  const Machine machine;
  std::optional<Engine> engine(options(""));
  std::optional<ScaleCall> call(std::in_place, *engine, 64, 128);
  std::optional<kiln::Plan> first(call->op.plan(call->problem, machine.stream()));
  kiln::Plan moved_to = std::move(*first);
  kiln::Op op = std::move(call->op);
  const Engine taken = std::move(*engine);
  CHECK(engine->stats().tunes == 1);  // NOLINT(bugprone-use-after-move): that is the point
  engine.reset();
  const auto serves = [&](const auto& work) {
    call->poison();
    work();
    call->check();
  };
  serves([&] { first->launch(call->problem, call->arguments, machine.stream()); });
  serves([&] { call->op.launch(call->problem, call->arguments, machine.stream()); });
  first.reset();
  serves([&] { moved_to.launch(call->problem, call->arguments, machine.stream()); });
  serves([&] { op.launch(call->problem, call->arguments, machine.stream()); });
  CHECK(taken.stats().hot == 3);
}

TEST_CASE("an engine gives back its code and memory from a thread that has no context") {
  const Machine machine;
  control("kernel wrong scale_tiled");
  const std::int64_t handles = query("handles"), memory = query("memory");
  std::optional<Engine> engine(options(""));
  auto plan = std::make_unique<kiln::Plan>([&] {
    const kiln::Op op = engine->op("scale");
    return op.plan(op.problem({{"rows", 64}, {"cols", 128}, {"dtype", "f32"}}), machine.stream());
  }());
  CHECK(query("memory") > memory);
  engine.reset();
  std::thread([&] { plan.reset(); }).join();
  CHECK(query("memory") == memory);
  CHECK(query("handles") == handles);
}

}  // namespace e2e

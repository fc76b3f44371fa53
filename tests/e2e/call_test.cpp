// The hit path: real sizes and addresses, bad input, captures, threads.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>

#include "e2e/engine_fixture.hpp"
#include "e2e/graph.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;
using kiln::MissPolicy;
using kiln::Origin;

namespace {

/// tile_scale with so many tensors that x is the ninth: the winner takes it by a TMA descriptor, the default by its address.
std::filesystem::path wide_op(const TemporaryFolder& folder) {
  const std::filesystem::path to = folder / "ops";
  std::filesystem::create_directories(to);
  std::filesystem::copy(std::filesystem::path(KILN_SOURCE_DIR) / "tests/ops/tile_scale", to / "tile_scale");
  std::ifstream in(to / "tile_scale/op.toml");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t x = text.find("x = {"), y = text.find("y = {");
  const std::string of_x = text.substr(x, y - x), of_y = text.substr(y, text.find('\n', y) + 1 - y);
  std::string tensors = of_y;
  for (int i = 1; i < 8; ++i)
    tensors += "unused_" + std::to_string(i) + " = { shape = [\"1\"], dtype = \"dtype\", optional = true }\n";
  text.replace(x, of_x.size() + of_y.size(), tensors + of_x);
  std::ofstream(to / "tile_scale/op.toml") << text;
  return to;
}

constexpr int global = Graph::global, thread_local_ = Graph::thread_local_, relaxed = Graph::relaxed;

}  // namespace

TEST_CASE(
    "an op with a wrong manifest is left out with a warning, refused by name, and stops no other op of its folder") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "wrong");
  std::ofstream(folder / "wrong/op.toml") << "[op]\nsummary = 3\n";
  const Machine machine;
  kiln::Options chosen = options("");
  chosen.template_paths.push_back(folder / ".");
  const kiln::Engine engine(chosen);
  REQUIRE(engine.warnings().size() == 1);
  CHECK(contains(engine.warnings()[0], "the op 'wrong' is left out: "));
  CHECK(contains(engine.warnings()[0], "op.toml:2: "));
  const kiln::Error error = error_of([&] { (void)engine.op("wrong"); });
  CHECK(error.kind() == kiln::ErrorKind::bad_manifest);
  CHECK(contains(error.what(), "the op 'wrong' is refused: "));
  ScaleCall(engine, 64, 128).launch(machine.stream());  // checks what was computed
}

TEST_CASE("a tensor given as one value, address and strides, is read as its strides say") {
  const Machine machine;
  const Engine engine(options(""));
  const kiln::Op op = engine.op("scale");
  const kiln::TensorId x_id = op.tensor("x");
  REQUIRE(x_id.strides == 1);
  CHECK(op.tensor("y").strides == 0);
  constexpr std::int64_t stride = 136;
  const Floats x(64 * stride), y(64 * 128);
  const std::vector<float> values = ramp(64 * stride);
  x.upload(values);
  kiln::Arguments arguments = op.arguments({{"y", y.address()}, {"factor", 3.0}});
  arguments.set(x_id, {x.address(), {stride}});
  for (int i = 0; i < 2; ++i) {  // the second launch is hot
    op.launch(op.problem({{"rows", 64}, {"cols", 128}, {"dtype", "f32"}}), arguments, machine.stream());
    const std::vector<float> got = y.download();
    for (std::size_t row = 0; row < 64; ++row)
      for (std::size_t col = 0; col < 128; ++col) REQUIRE(got[row * 128 + col] == 3 * values[row * stride + col]);
  }
}

TEST_CASE("an address that the winner cannot take is served by an implementation that can") {
  const Machine machine;
  const Engine engine(options(""));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(ScaleCall(engine, 64, 128, 4).launch(machine.stream()) == Origin::default_);
  CHECK(engine.stats().constraint_fallbacks == 1);
}

TEST_CASE("what serves in place of a winner gets tensors that the winner does not take by address") {
  const Machine machine;
  const TemporaryFolder folder;
  kiln::Options chosen = options("");
  chosen.template_paths = {wide_op(folder)};
  const Engine engine(chosen);
  const Floats x(64 * 64), y(64 * 64);
  const kiln::Op op = engine.op("tile_scale");
  const kiln::Problem problem = op.problem({{"rows", 20}, {"cols", 64}, {"dtype", "f32"}});
  const auto launch = [&](std::size_t misalignment) {
    x.upload(ramp(20 * 64), misalignment);
    return op.launch(problem, op.arguments({{"x", x.address(misalignment)}, {"y", y.address()}, {"scale", 3.0}}),
                     machine.stream());
  };
  CHECK(launch(0) == Origin::overlay);
  REQUIRE(op.plan(problem).implementation() == "tma");
  CHECK(launch(4) == Origin::default_);
  CHECK(y.download()[1000] == 3 * ramp(1001)[1000]);
}

TEST_CASE("an address that nothing can take is refused with the tensor and its alignment") {
  const Machine machine;
  const Engine engine(options("", MissPolicy::nearest));
  const Floats x(64 * 64), y(64 * 64);
  const kiln::Op op = engine.op("rms_norm");
  const kiln::Problem problem = op.problem({{"rows", 2}, {"cols", 64}, {"dtype", "f32"}});
  const kiln::Arguments arguments = op.arguments({{"x", x.address(2)}, {"weight", x.address()}, {"y", y.address()}});
  const kiln::Error error = error_of([&] { op.launch(problem, arguments, machine.stream()); });
  CHECK(error.kind() == ErrorKind::bad_input);
  CHECK(contains(error.what(), "'x'"));
  machine.synchronize();  // the context is whole
}

TEST_CASE("a tensor that is missing is named; an optional one may be") {
  const Machine machine;
  const Engine engine(options(""));
  ScaleCall call(engine, 64, 128);
  call.launch(machine.stream());
  call.arguments.set(call.op.tensor("x"), nullptr);
  const kiln::Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  CHECK(error.kind() == ErrorKind::bad_input);
  CHECK(contains(error.what(), "'x'"));
}

TEST_CASE("a tensor is asked for under the choices that have it, and under no others") {
  const Machine machine;
  const Engine engine(options("", MissPolicy::nearest));
  const kiln::Op op = engine.op("rms_norm");
  const Floats x(8 * 64), weight(64), y(8 * 64);
  const kiln::Arguments arguments =
      op.arguments({{"x", x.address()}, {"weight", weight.address()}, {"y", y.address()}});
  op.launch(op.problem({{"rows", 8}, {"cols", 64}, {"dtype", "f32"}}), arguments, machine.stream());
  const kiln::Problem fused = op.problem({{"rows", 8}, {"cols", 64}, {"dtype", "f32"}, {"residual", "add"}});
  const kiln::Error error = error_of([&] { op.launch(fused, arguments, machine.stream()); });
  CHECK(error.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(contains(error.what(), "'residual_in' is missing"), std::string(error.what()));
}

TEST_CASE("one buffer may be an input and the output that takes its place") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall call(engine, 64, 128);
  const std::vector<float> values = ramp(64 * 128);
  const Floats both(values);
  call.op.launch(call.problem, call.op.arguments({{"x", both.address()}, {"y", both.address()}, {"factor", 2.0}}),
                 machine.stream());
  machine.synchronize();
  const std::vector<float> got = both.download();
  CHECK(std::equal(got.begin(), got.end(), values.begin(), [](float a, float b) { return a == 2 * b; }));
}

TEST_CASE("unknown names are refused with those that there are") {
  const Machine machine;
  const Engine engine(options(""));
  CHECK(contains(error_of([&] { static_cast<void>(engine.op("scail")); }).what(), "scale"));
  const kiln::Op op = engine.op("scale");
  const auto refused = [&](auto work, const char* nearest) {
    const kiln::Error error = error_of(work);
    CHECK(error.kind() == ErrorKind::bad_input);
    CHECK_MESSAGE(contains(error.what(), nearest), std::string(error.what()));
  };
  refused([&] { static_cast<void>(op.axis("row")); }, "rows");
  refused([&] { static_cast<void>(op.tensor("z")); }, "x");
  refused([&] { static_cast<void>(op.runtime("facto")); }, "factor");
  refused([&] { static_cast<void>(op.problem({{"rows", 1}, {"clos", 1}})); }, "cols");
  refused([&] { static_cast<void>(op.problem({{"rows", 1}})); }, "cols");
  refused([&] { static_cast<void>(op.problem({{"rows", 1}, {"cols", 1}, {"dtype", "f23"}})); }, "f32");
  refused([&] { static_cast<void>(op.arguments({{"xx", nullptr}})); }, "x");
}

TEST_CASE("a capture meets a miss that nothing can serve with an error and stays valid") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall ready(engine, 64, 128), other(engine, 512, 127);  // which the ready one's vectors do not divide
  ready.launch(machine.stream());
  ready.poison();
  const Graph graph(machine, global, [&] {
    const kiln::Error error = error_of([&] { other.op.launch(other.problem, other.arguments, machine.stream()); });
    CHECK(error.kind() == ErrorKind::capture);
    ready.op.launch(ready.problem, ready.arguments, machine.stream());
  });
  CHECK(engine.stats().tunes == 1);
  graph.replay();
  ready.check();
}

TEST_CASE("a plan that was made ready is captured in every mode, and its graph replays") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall call(engine, 64, 128);
  static_cast<void>(call.op.plan(call.problem, machine.stream()));
  for (const int mode : {global, thread_local_, relaxed}) {
    const Graph graph(machine, mode, [&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
    for (int i = 0; i < 3; ++i) {
      call.poison();
      graph.replay();
      call.check();
    }
  }
}

TEST_CASE("a launch that the driver refuses is not counted, and the one after it counts as the first") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall call(engine, 64, 128);
  static_cast<void>(call.op.plan(call.problem, machine.stream()));
  control("fail cuLaunchKernelEx CUDA_ERROR_INVALID_VALUE");
  static_cast<void>(error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); }));
  control("heal");
  CHECK(engine.stats().launches() == 0);
  CHECK(call.op.launch(call.problem, call.arguments, machine.stream()) == Origin::overlay);
  CHECK(call.op.launch(call.problem, call.arguments, machine.stream()) == Origin::hot);
  CHECK(engine.stats().launches() == 2);
}

TEST_CASE("a capture that needs a fallback that was not loaded is told so, and stays valid") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall ready(engine, 64, 128), odd(engine, 64, 127);
  ready.launch(machine.stream());
  const Graph graph(machine, global, [&] {
    CHECK(error_of([&] { odd.op.launch(odd.problem, odd.arguments, machine.stream()); }).kind() == ErrorKind::capture);
    ready.op.launch(ready.problem, ready.arguments, machine.stream());
  });
  graph.replay();
  ready.check();
}

TEST_CASE("eight threads that miss at once tune each bucket once, and all get right results") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      if (driver_call<CUctx_st*>("cuCtxPushCurrent_v2", machine.context()) != 0) ++failures;
      try {
        kiln::Stream stream = nullptr;
        driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &stream, 1U);
        const ScaleCall mine(engine, t % 2 == 0 ? 64 : 256, 128 - 4 * t);
        for (int i = 0; i < 10; ++i) mine.launch(stream);
      } catch (const std::exception&) {
        ++failures;
      }
      driver_call<CUctx_st**>("cuCtxPopCurrent_v2", nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(engine.stats().tunes == 2);
  CHECK(engine.stats().overlay == 2);
  CHECK(engine.stats().hot == 78);
}

TEST_CASE("a thread without a current context launches, and is left without one") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall call(engine, 64, 128);
  call.op.plan(call.problem, machine.stream());
  call.poison();
  CUctx_st* after = machine.context();
  std::thread([&] {
    call.op.launch(call.problem, call.arguments, machine.stream());
    driver_call<CUctx_st**>("cuCtxGetCurrent", &after);
  }).join();
  CHECK(after == nullptr);
  call.check();
}

TEST_CASE("a plan outlives its engine, and refuses another bucket's problem") {
  const Machine machine;
  std::optional<Engine> engine(options(""));
  const ScaleCall call(*engine, 64, 128);
  const kiln::Plan plan = call.op.plan(call.problem, machine.stream());
  engine.reset();
  call.poison();
  plan.launch(call.problem, call.arguments, machine.stream());
  call.check();
  kiln::Problem other = call.problem;
  other[call.op.axis("rows")] = 500;
  CHECK(error_of([&] { plan.launch(other, call.arguments, machine.stream()); }).kind() == ErrorKind::bad_input);
}

TEST_CASE("two engines keep apart what they know") {
  const Machine machine;
  const Engine first(options("")), second(options("", MissPolicy::error));
  CHECK(ScaleCall(first, 64, 128).launch(machine.stream()) == Origin::overlay);
  const ScaleCall call(second, 64, 128);
  CHECK(error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); }).kind() ==
        ErrorKind::not_tuned);
}

}  // namespace e2e

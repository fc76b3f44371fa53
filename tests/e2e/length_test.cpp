// Lengths in device memory: one graph for a bucket, what is clamped and reported, what is refused.
#include "e2e/engine_fixture.hpp"
#include "e2e/graph.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;

namespace {

constexpr std::int64_t bound = 64, cols = 128;

/// One int32 in device memory.
class DeviceLength {
 public:
  DeviceLength() {
    REQUIRE(driver_call<unsigned long long*, std::size_t>("cuMemAlloc_v2", &pointer_, sizeof(std::int32_t)) == 0);
  }
  ~DeviceLength() { driver_call<unsigned long long>("cuMemFree_v2", pointer_); }
  DeviceLength(const DeviceLength&) = delete;
  DeviceLength& operator=(const DeviceLength&) = delete;
  void set(std::int32_t length) const {
    REQUIRE(driver_call<unsigned long long, const void*, std::size_t>("cuMemcpyHtoD_v2", pointer_, &length,
                                                                      sizeof length) == 0);
  }
  [[nodiscard]] const std::int32_t* address() const { return reinterpret_cast<const std::int32_t*>(pointer_); }

 private:
  unsigned long long pointer_ = 0;
};

/// y = 2 x over rows of a bucket, of which the device says how many there are.
struct Call {
  explicit Call(const Engine& engine)
      : op(engine.op("scale")), problem(op.problem({{"rows", bound}, {"cols", cols}, {"dtype", "f32"}})) {
    arguments = op.arguments({{"x", x.address()}, {"y", y.address()}, {"factor", 2.0}, {"rows", length.address()}});
  }
  /// Values in the rows up to `rows`, NaN in the others and in all of y.
  void fill(std::int64_t rows) const {
    values = ramp(bound * cols);
    std::fill(values.begin() + rows * cols, values.end(), NAN);
    x.upload(values);
    y.upload(std::vector<float>(bound * cols, NAN));
  }
  /// The rows up to `rows` are computed, the others are as they were.
  void check(std::int64_t rows) const {
    const std::vector<float> got = y.download();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < bound * cols; ++i) {
      const float value = got[static_cast<std::size_t>(i)];
      const bool right = i < rows * cols ? value == 2 * values[static_cast<std::size_t>(i)] : std::isnan(value);
      wrong += right ? 0 : 1;
    }
    CAPTURE(rows);
    CHECK(wrong == 0);
  }

  kiln::Op op;
  kiln::Problem problem;
  kiln::Arguments arguments;
  DeviceLength length;
  Floats x{bound * cols}, y{bound * cols};
  mutable std::vector<float> values;
};

}  // namespace

TEST_CASE("one graph of a bucket serves every length in it, and leaves the padding alone") {
  const Machine machine;
  const Engine engine(options(""));
  Call call(engine);
  static_cast<void>(call.op.plan(call.problem, machine.stream()));
  const Graph graph(machine, Graph::global, [&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  for (std::int32_t rows = 0; rows <= bound; ++rows) {
    call.length.set(rows);
    call.fill(rows);
    graph.replay();
    machine.synchronize();
    call.check(rows);
  }
  CHECK_FALSE(engine.check(machine.stream()).has_value());
}

TEST_CASE("an implementation of several passes takes its length from the device too") {
  const Machine machine;
  const Engine engine(options("", kiln::MissPolicy::nearest));
  Call call(engine);
  call.arguments.set(call.op.tensor("x"),
                     call.x.address(4));  // for which no vectors serve: the copy in a workspace does
  call.arguments.set(call.op.tensor("y"), call.y.address());
  call.fill(bound);
  call.length.set(3);
  call.op.launch(call.problem, call.arguments, machine.stream());
  machine.synchronize();
  const std::vector<float> got = call.y.download();
  CHECK(got[3 * cols - 1] == 2 * call.values[3 * cols]);
  CHECK(std::isnan(got[3 * cols]));
}

TEST_CASE("a length outside its bound is clamped and reported once") {
  const Machine machine;
  const Engine engine(options(""));
  Call call(engine);
  for (const std::int32_t length : {65, 1 << 30, -1}) {
    call.length.set(length);
    call.fill(bound);
    call.op.launch(call.problem, call.arguments, machine.stream());
    const auto fault = engine.check(machine.stream());
    REQUIRE(fault.has_value());
    CHECK(fault->op == "scale");
    CHECK(fault->axis == "rows");
    CHECK(fault->length == length);
    CHECK(fault->bound == bound);
    CHECK_FALSE(engine.check(machine.stream()).has_value());
    call.check(length < 0 ? 0 : bound);
  }
}

TEST_CASE("a check of lengths is refused on a capturing stream, which captures on") {
  const Machine machine;
  const Engine engine(options(""));
  Call call(engine);
  call.length.set(5);
  call.fill(5);
  static_cast<void>(call.op.plan(call.problem, machine.stream()));
  const Graph graph(machine, Graph::thread_local_, [&] {
    CHECK(error_of([&] { static_cast<void>(engine.check(machine.stream())); }).kind() == ErrorKind::capture);
    call.op.launch(call.problem, call.arguments, machine.stream());
  });
  graph.replay();
  machine.synchronize();
  call.check(5);
}

TEST_CASE("a length that is null, misaligned, or of another axis is refused before anything is launched") {
  const Machine machine;
  const Engine engine(options(""));
  Call call(engine);
  call.fill(bound);
  const kiln::AxisId rows = call.op.axis("rows");
  const auto refused = [&](const kiln::Arguments& arguments, const char* part) {
    const kiln::Error error = error_of([&] { call.op.launch(call.problem, arguments, machine.stream()); });
    CHECK(error.kind() == ErrorKind::bad_input);
    CHECK_MESSAGE(contains(error.what(), part), std::string(error.what()));
  };
  kiln::Arguments arguments = call.arguments;
  refused(arguments.set(rows, static_cast<const std::int32_t*>(nullptr)), "axis 'rows' on the device is 0x0");
  const auto misaligned = reinterpret_cast<std::uintptr_t>(call.length.address()) + 2;
  refused(arguments.set(rows, reinterpret_cast<const std::int32_t*>(misaligned)), "the address of an int32");
  arguments.reset(rows);
  refused(arguments.set(call.op.axis("cols"), call.length.address()), "axis 'cols' may not have its length");
  CHECK(contains(error_of([&] { static_cast<void>(call.op.arguments({{"rows", 3.0}})); }).what(), "device address"));
  arguments.reset(call.op.axis("cols"));
  call.op.launch(call.problem, arguments, machine.stream());
  machine.synchronize();
  call.check(bound);
}

}  // namespace e2e

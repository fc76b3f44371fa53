// Indices in device memory that lie outside of their table. tests/device runs the kernel itself.
#include <limits>

#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

constexpr std::int64_t dim = 8, rows = 5;

template <typename T>
class Values {
 public:
  explicit Values(const std::vector<T>& values) : bytes_(values.size() * sizeof(T)) {
    REQUIRE(driver_call<unsigned long long*, std::size_t>("cuMemAlloc_v2", &pointer_, bytes_) == 0);
    REQUIRE(driver_call<unsigned long long, const void*, std::size_t>("cuMemcpyHtoD_v2", pointer_, values.data(),
                                                                      bytes_) == 0);
  }
  ~Values() { driver_call<unsigned long long>("cuMemFree_v2", pointer_); }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  [[nodiscard]] const void* address() const { return reinterpret_cast<const void*>(pointer_); }

 private:
  unsigned long long pointer_ = 0;
  std::size_t bytes_;
};

std::vector<float> ramp_of(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 13) - 5;
  return values;
}

/// Launches rotary with tables of `rows` rows, and checks that each token is turned by the row that is next to its position.
template <typename Index>
void check_turned(const Engine& engine, const Machine& machine, const char* index, const std::vector<Index>& given) {
  const Op op = engine.op("rotary");
  const auto tokens = static_cast<std::int64_t>(given.size());
  const std::vector<float> from = ramp_of(given.size() * dim), cosines = ramp_of(rows * dim / 2),
                           sines = ramp_of(rows * dim / 2 + 3);
  const Values<float> x(from), cos(cosines), sin(sines);
  const Values<Index> positions(given);
  const Floats y(from.size());
  op.launch(
      op.problem(
          {{"tokens", tokens}, {"heads", 1}, {"dim", dim}, {"rotary_dim", dim}, {"dtype", "f32"}, {"index", index}}),
      op.arguments({{"x", x.address()},
                    {"cos", cos.address()},
                    {"sin", sin.address()},
                    {"positions", positions.address()},
                    {"y", y.address()},
                    {"table_rows", rows}}),
      machine.stream());
  machine.synchronize();
  const std::vector<float> got = y.download();
  for (std::size_t at = 0; at < got.size(); ++at) {
    const auto token = at / dim, i = at % dim, pair = i % (dim / 2);
    const auto row = static_cast<std::size_t>(std::clamp<std::int64_t>(given[token], 0, rows - 1));
    const float c = cosines[row * dim / 2 + pair], s = sines[row * dim / 2 + pair];
    const float a = from[token * dim + pair], b = from[token * dim + pair + dim / 2];
    CHECK(got[at] == (i < dim / 2 ? a * c - b * s : b * c + a * s));
  }
}

void check_told(const Engine& engine, Stream stream, std::int64_t position) {
  const auto fault = engine.check(stream);
  REQUIRE(fault.has_value());
  CHECK(fault->op == "rotary");
  CHECK(fault->tensor == "positions");
  CHECK(fault->axis.empty());
  CHECK(fault->length == position);
  CHECK(fault->bound == rows);
  CHECK_FALSE(engine.check(stream).has_value());
}

}  // namespace

TEST_CASE("fault 69: rotary takes a position outside of its tables as the nearer end, and Engine::check names it") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(e2e::options(folder / "overlay.kiln", MissPolicy::nearest));
  constexpr int highest = std::numeric_limits<std::int32_t>::max(), lowest = std::numeric_limits<std::int32_t>::min();
  check_turned<std::int32_t>(engine, machine, "i32", {0, 4, 2, 1, 3});
  CHECK_FALSE(engine.check(machine.stream()).has_value());
  std::int64_t cases = 1;
  for (const std::int32_t outside : {5, -1, highest, lowest, 1 << 20}) {
    check_turned<std::int32_t>(engine, machine, "i32", {0, outside, 2});
    check_told(engine, machine.stream(), outside);
    ++cases;
  }
  for (const std::int64_t outside : {std::int64_t{5}, std::int64_t{-7}, std::int64_t{1} << 32, -(std::int64_t{1} << 40),
                                     std::numeric_limits<std::int64_t>::max()}) {
    check_turned<std::int64_t>(engine, machine, "i64", {outside, 4});
    check_told(engine, machine.stream(), std::clamp<std::int64_t>(outside, lowest, highest));
    ++cases;
  }
  tally(69, cases, "positions");
}

}  // namespace kiln::faults

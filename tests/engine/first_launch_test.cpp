// How many compiles the first launch of a bucket waits for where files have records and no machine code.
#include <string>
#include <vector>

#include "engine/ahead_engine.hpp"
#include "engine/miss_path.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::plan;
using namespace kiln::engine::testing;

namespace {

/// A record of 129 to 256 rows with three configs, none of which has machine code.
void put_three(ScaleEngine& engine) {
  engine.put(sized(256, 128), {tiled(loaded, "rows=129..192 cols=65..128"), tiled(first, "rows=193..224 cols=65..128"),
                               tiled(last, "rows=225..256 cols=65..128")});
}

std::string in_label(std::string config) { return "tiled " + std::move(config); }

/// The op head_scale: heads are an exact size, which its machine code does not depend on where each is a group.
class HeadScale {
 public:
  explicit HeadScale(ScaleEngine& engine)
      : engine_(engine), op_(engine.engine.op_state(engine.engine.ops.find("head_scale").value())) {
    arguments_.op = op_.op.tag;
    for (const std::uint8_t tensor : {std::uint8_t{0}, std::uint8_t{1}})
      arguments_.set(TensorId{tensor}, reinterpret_cast<const void*>(engine.machine.allocate(bytes)));
    arguments_.set(RuntimeId{0, RuntimeId::Kind::real32}, 2.0);
  }
  [[nodiscard]] Problem of_heads(const std::string& heads) const {
    return manifest::parse_bucket(op_.op,
                                  "tokens=16 heads=" + heads + " groups=" + heads + " dim=32 dtype=f32 order=tokens")
        .value();
  }
  void put(const std::string& heads, const std::string& tile) {
    const Chosen chosen{"", "tile=" + tile, 1000, "packed"};
    engine_.engine.layers.put_all(std::vector{record_with(op_.op, of_heads(heads), {chosen}, op_.device())}, {});
  }
  Origin launch(const std::string& heads) {
    return plan::launch(op_, of_heads(heads), arguments_, engine_.machine.stream);
  }

 private:
  static constexpr std::size_t bytes = 16 * 8 * 32 * sizeof(float);
  ScaleEngine& engine_;
  OpState& op_;
  Arguments arguments_;
};

}  // namespace

TEST_CASE("a bucket's first launch waits for the config of its own sizes alone" * doctest::skip(no_plans())) {
  for (const MissPolicy policy : {MissPolicy::nearest, MissPolicy::background}) {
    Told told;
    told.hold();
    ScaleEngine engine(ahead_options(policy, told, 2));
    put_three(engine);
    CHECK(engine.launch(sized(150, 128)) == Origin::overlay);
    REQUIRE(told.waited_for.size() == 1);
    CHECK_MESSAGE(told.waited_for[0].find(in_label(loaded)) != std::string::npos, told.waited_for[0]);
    CHECK(engine.launch(sized(200, 128)) == Origin::nearest);  // by the config of 150 rows
    CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
    CHECK(engine.stats().misses.no_cubin == 1);
    told.free();
    REQUIRE(wait(engine));
    for (const std::int64_t rows : {150, 200, 256}) CHECK(is_hit(engine.launch(sized(rows, 128))));
    for (const auto& [rows, kernel] : {std::pair(150, "scale_tiled<float, 128, 1"),
                                       {200, "scale_tiled<float, 64, 4"},
                                       {256, "scale_tiled<float, 256, 1"}}) {
      const std::int64_t before = engine.runs(kernel);
      engine.launch(sized(rows, 128));
      CHECK(engine.runs(kernel) == before + 1);
    }
    CHECK(told.waited_for.size() == 1);
    CHECK(engine.stats().misses.no_cubin == 1);
    CHECK(engine.stats().tunes == 0);
  }
}

TEST_CASE("a config that serves its bucket while others are compiled stands in for near buckets" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold();
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  put_three(engine);
  engine.put(sized(512, 128), {tiled("threads=128 vector=4")});
  CHECK(engine.launch(sized(150, 128)) == Origin::overlay);
  CHECK(engine.launch(sized(512, 128)) == Origin::nearest);
  CHECK(told.waited_for.size() == 1);
  engine.put(sized(2048, 128), {tiled("threads=256 vector=4")});
  CHECK(engine.launch(sized(2048, 128)) == Origin::nearest);  // three doublings from 256 rows
  CHECK(told.waited_for.size() == 1);
  told.free();
  REQUIRE(wait(engine));
  CHECK(engine.launch(sized(512, 128)) == Origin::overlay);
}

TEST_CASE("without compiles ahead, and under a policy without fallbacks, a launch waits for all configs of its bucket" *
          doctest::skip(no_plans())) {
  for (const auto& [policy, ahead] : {std::pair(MissPolicy::nearest, 0), {MissPolicy::error, 1}}) {
    Told told;
    ScaleEngine engine(ahead_options(policy, told, ahead));
    put_three(engine);
    CHECK(engine.launch(sized(200, 128)) == Origin::overlay);
    CHECK(told.waited_for.size() == 3);
  }
}

TEST_CASE("a config that is illegal at other sizes of its bucket does not stand in for them" *
          doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  engine.put(sized(64, 128), {tiled("threads=64 vector=4", "rows=33..64 cols=72..72"),
                              tiled("threads=128 vector=1", "rows=33..64 cols=65..128")});
  CHECK(engine.launch(sized(64, 72)) == Origin::overlay);
  CHECK(engine.launch(sized(64, 71)) == Origin::overlay);
  CHECK(told.waited_for.size() == 2);
}

TEST_CASE("a launch of other exact sizes waits for nothing where a loaded config has the same machine code" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold();
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  HeadScale op(engine);
  op.put("8", "4");
  op.put("4", "16");
  CHECK(op.launch("8") == Origin::overlay);
  CHECK(op.launch("4") == Origin::nearest);
  CHECK(told.waited_for.size() == 1);
  told.free();
  REQUIRE(wait(engine));
  CHECK(op.launch("4") == Origin::overlay);
  CHECK(told.waited_for.size() == 1);
}

TEST_CASE("beside the first compile that a launch waits for the default is compiled, which serves lengths far away" *
          doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_records(engine);
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  REQUIRE(wait(engine));
  REQUIRE(told.ahead.size() >= 1);
  CHECK_MESSAGE(told.ahead[0].find(in_label("threads=64 vector=1")) != std::string::npos, told.ahead[0]);
  told.hold({"threads=256 vector=4"});
  CHECK(engine.launch(sized(2048, 128)) == Origin::default_);
  told.free("threads=256 vector=4");
  REQUIRE(wait(engine));
  CHECK(engine.launch(sized(2048, 128)) == Origin::overlay);
  CHECK(told.waited_for.size() == 1);
}

// kiln bench: what is decided without a device.
#include "cli/bench/contest.hpp"
#include "cli/bench/idle.hpp"
#include "cli/bench/lengths.hpp"
#include "cli/bench/regret.hpp"
#include "cli/command.hpp"
#include "cli/problem_set.hpp"
#include "cli/sample_op.hpp"
#include "cli/target.hpp"

using namespace kiln;
using namespace kiln::cli;
using namespace kiln::cli::bench;
using kiln::testing::check_refused;
using kiln::testing::message_of;

namespace {

store::Choice stored(double cost_ns) {
  store::Choice choice;
  choice.cost_ns = cost_ns;
  choice.low_ns = cost_ns * 0.98;
  choice.high_ns = cost_ns * 1.02;
  return choice;
}

tune::Cost timed(double low_ns, double median_ns, double high_ns) { return {median_ns, low_ns, high_ns, 41}; }

struct Gemm {
  manifest::Catalogue ops{std::span<const std::filesystem::path>()};
  const manifest::Op& op = find_op(ops, "gemm");
  manifest::DeviceFacts device = manifest::DeviceFacts::from_device_class(h200_device_class).value();
  [[nodiscard]] Problem problem(std::vector<std::string> words) const { return parse_problem(op, words); }
  [[nodiscard]] manifest::Variant mma(const std::string& config) const {
    const manifest::Implementation* found = op.find("mma");
    return {found, manifest::parse_config(*found, config).value()};
  }
};

/// As many blocks as multiprocessors, of which each takes pieces of `piece` rows in turns.
manifest::Op persistent_op() {
  std::vector<manifest::SourceFile> files = kiln::testing::sample_files();
  files.push_back({"persistent.toml", R"toml(summary = "pieces of rows"
[parameters]
piece = [1, 1024]
[default]
piece = 1024
[[pass]]
kernel = "twice<{dtype}, {piece}>"
grid   = ["sm_count"]
block  = ["128"]
args   = ["x", "y", "cols"]
[pass.model]
busy_blocks = "ceil_div(rows, piece)"
)toml"});
  files.push_back({"persistent.cuh", ""});
  return manifest::parse_op("twice", "tests", files);
}

manifest::Axis axis_to(std::int64_t maximum, std::int64_t multiple_of = 1) {
  manifest::Axis axis;
  axis.name = "rows";
  axis.policies.front().policy.kind = manifest::PolicyKind::pow2;
  axis.maximum = maximum;
  axis.multiple_of = multiple_of;
  return axis;
}

Regret regret_of(std::int64_t length, double regret) {
  Regret each;
  each.length = length;
  each.regret = regret;
  return each;
}

}  // namespace

TEST_CASE("a config is slower than stored only when the intervals do not meet and the change is past the tolerance") {
  CHECK(is_slower(timed(1190, 1200, 1210), stored(1000), 0.05));
  CHECK_FALSE(is_slower(timed(1015, 1200, 1210), stored(1000), 0.05));  // the intervals meet
  CHECK_FALSE(is_slower(timed(1025, 1040, 1050), stored(1000), 0.05));  // within the tolerance
  CHECK_FALSE(is_slower(timed(790, 800, 810), stored(1000), 0.05));     // faster
  CHECK_FALSE(is_slower(timed(1190, 1200, 1210), stored(0), 0.05));     // nothing was promised
  CHECK_FALSE(is_slower(tune::Cost{}, stored(1000), 0.05));             // nothing was timed
}

TEST_CASE("of two timed in turns one is slower when it is in nearly every turn, whatever the clock does meanwhile") {
  std::vector<double> a, b;
  for (int i = 0; i < 21; ++i) {
    const double clock = 1 + 0.5 * (i % 3);
    a.push_back(1100 * clock);
    b.push_back(1000 * clock);
  }
  CHECK(is_slower(a, b, 0.05));
  CHECK_FALSE(is_slower(b, a, 0.05));
  CHECK_FALSE(is_slower(a, b, 0.15));
}

TEST_CASE("a split count of one that leaves most multiprocessors idle is seen, with configs of more blocks") {
  const Gemm gemm;
  const Problem problem = gemm.problem({"m=16", "n=256", "k=16384"});
  const manifest::Variant clamped = gemm.mma("tile_m=16 tile_n=32 warps=2 tile_k=64 stages=6 splits=1 group=8 pdl=0");
  const auto idle = idle_launch({gemm.op, gemm.device}, clamped, problem);
  REQUIRE(idle.has_value());
  CHECK(idle->blocks == 8);
  REQUIRE_FALSE(idle->wider.empty());
  const manifest::Variant& first = idle->wider.front();  // differs in the splits alone
  CHECK(first.name() == "mma tile_m=16 tile_n=32 warps=2 tile_k=64 stages=6 splits=8 group=8 pdl=0");
  CHECK(blocks_of({gemm.op, gemm.device}, first, problem) == 64);
}

TEST_CASE("a launch that fills the device, has nothing wider or next to no work is not called idle") {
  const Gemm gemm;
  const manifest::Variant clamped = gemm.mma("tile_m=16 tile_n=32 warps=2 tile_k=64 stages=6 splits=1 group=8 pdl=0");
  CHECK_FALSE(idle_launch({gemm.op, gemm.device}, clamped, gemm.problem({"m=16", "n=8192", "k=4096"})));  // 256 blocks
  CHECK_FALSE(idle_launch({gemm.op, gemm.device}, clamped, gemm.problem({"m=1", "n=32", "k=64"})));
  const manifest::Op one = kiln::testing::sample_op();  // its grid is its rows, whatever the config
  const manifest::Variant plain{one.find("plain"), {64}};
  CHECK_FALSE(
      idle_launch({one, gemm.device}, plain, parse_problem(one, std::vector<std::string>{"rows=4", "cols=1024"})));
}

TEST_CASE("a persistent grid does not hide that few of its blocks get work") {
  const Gemm gemm;
  const manifest::Op op = persistent_op();
  const manifest::Variant large{op.find("persistent"), {1024}};
  const Problem problem = parse_problem(op, std::vector<std::string>{"rows=4096", "cols=1024"});
  const auto idle = idle_launch({op, gemm.device}, large, problem);
  REQUIRE(idle.has_value());
  CHECK(idle->blocks == 4);
  CHECK(blocks_of({op, gemm.device}, idle->wider.front(), problem) == 132);  // of 4,096 pieces
}

TEST_CASE("many blocks that add up a sequence's few parts do not hide that its keys are read by few") {
  const Gemm gemm;
  const manifest::Op& op = find_op(gemm.ops, "attention_decode");
  const manifest::Implementation* const mma = op.find("mma");
  const manifest::Variant frozen{
      mma, manifest::parse_config(*mma, "tile_n=32 key_warps=4 stages=3 resident=1 splits=16 pdl=0").value()};
  const Problem problem = parse_problem(op, std::vector<std::string>{"batch=1", "keys=131072", "queries=1", "heads=8",
                                                                     "key_heads=1", "head_dim=128", "value_dim=128"});
  const auto idle = idle_launch({op, gemm.device}, frozen, problem);  // its second pass has 128 blocks
  REQUIRE(idle.has_value());
  CHECK(idle->blocks == 16);
  CHECK(idle->wider.front().name() == "mma tile_n=32 key_warps=4 stages=3 resident=1 splits=128 pdl=0");
}

TEST_CASE("a policy reads as a person writes it and as a key has it") {
  const manifest::Axis axis = axis_to(8192);
  CHECK(parse_policy("pow2", axis).text() == "pow2");
  CHECK(parse_policy("exact", axis).text() == "exact");
  CHECK(parse_policy("edges:16,64,256", axis).text() == "edges(16;64;256)");
  CHECK(parse_policy("pow2_steps:256,2048/256,4096/512", axis).text() == "pow2_steps(256;2048/256;4096/512)");
  for (const char* text : {"edges(16;64;256)", "pow2_steps(256;2048/256;4096/512)"})
    CHECK(parse_policy(text, axis).text() == text);
}

TEST_CASE("a policy that no axis could have is refused with what was expected") {
  const manifest::Axis axis = axis_to(8192, 8);
  for (const char* text :
       {"pow3", "edges", "edges:", "pow2:4", "edges:64,16", "edges:16,x", "edges:0", "edges:12", "edges:16384",
        "pow2_steps:100", "pow2_steps:256,2048", "pow2_steps:256,2048/300", "pow2_steps:256,2048/4", "exact(1)", ""})
    CHECK_MESSAGE(message_of([&] { parse_policy(text, axis); }).find("expected") != std::string::npos,
                  std::string(text));
}

TEST_CASE(
    "lengths are legal, distinct, the same for a seed, spread over the logarithm, and come right after each edge") {
  const manifest::Axis axis = axis_to(8192, 8);
  const std::vector<Range> ranges{{64, 4096}};
  const std::vector<manifest::BucketPolicy> policies{parse_policy("pow2", axis), parse_policy("edges:80,4000", axis)};
  const auto lengths = lengths_of(axis, ranges, 200, 3, policies);
  CHECK(lengths == lengths_of(axis, ranges, 200, 3, policies));
  CHECK(lengths != lengths_of(axis, ranges, 200, 4, policies));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    CHECK(lengths[i] % 8 == 0);
    CHECK(lengths[i] >= 64);
    CHECK(lengths[i] <= 4096);
    if (i > 0) CHECK(lengths[i - 1] < lengths[i]);
  }
  for (const std::int64_t after : {72, 136, 264, 520, 1032, 2056, 88, 4008})
    CHECK(std::find(lengths.begin(), lengths.end(), after) != lengths.end());
  const auto middle = std::count_if(lengths.begin(), lengths.end(), [](std::int64_t each) { return each <= 512; });
  CHECK(middle > 20);
  CHECK(middle < 60);  // there are 57 multiples of 8 from 64 to 512
  CHECK(lengths_of(axis, std::vector<Range>{{8, 8}}, 5, 1, {}) == std::vector<std::int64_t>{8});
}

TEST_CASE("a summary of regrets has the median, the nearest rank of 95 %, and where the worst is") {
  std::vector<Regret> regrets;
  for (int i = 1; i <= 20; ++i) regrets.push_back(regret_of(100 + i, 0.01 * i));
  const RegretSummary summary = bench::summarise(regrets);
  CHECK(summary.lengths == 20);
  CHECK(summary.median == doctest::Approx(0.10));
  CHECK(summary.p95 == doctest::Approx(0.19));
  CHECK(summary.worst == doctest::Approx(0.20));
  CHECK(summary.worst_length == 120);
  CHECK(bench::summarise({}).lengths == 0);
  CHECK(class_of(1) == 1);
  CHECK(class_of(3) == 1);
  CHECK(class_of(4) == 4);
  CHECK(class_of(1023) == 256);
  CHECK(class_of(1024) == 1024);
}

TEST_CASE("what kiln bench cannot mean is refused before a device is asked") {
  const kiln::testing::Command command;
  check_refused(command.run("bench records --op gmem"), 2, "did you mean 'gemm'");
  check_refused(command.run("bench records --against nowhere.kiln"), 2, "does not exist");
  check_refused(command.run("bench regret gemm m=16 n=4096 k=4096"), 2, "expected one");
  check_refused(command.run("bench regret softmax rows=1..64 cols=1..4096"), 2, "--axis says which is the length");
  check_refused(command.run("bench regret softmax rows=1..64 cols=1..4096 --axis rows"), 2, "axis 'cols' is a range");
  check_refused(command.run("bench regret gemm m=1..64 n=4096 k=4096 --policy pow3"), 2, "expected pow2, exact");
  check_refused(command.run("bench records"), 3, "");  // there is no driver here
}

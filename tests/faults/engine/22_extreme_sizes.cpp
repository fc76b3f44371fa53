// Sizes at the ends of 64 bits, and expressions that leave them: a typed error, no undefined behaviour. CI runs this under
// UndefinedBehaviorSanitizer.
#include <fmt/format.h>
#include <rapidcheck.h>

#include <limits>

#include "cli/problem_set.hpp"
#include "cli/trace_draw.hpp"
#include "faults/engine/fixture.hpp"
#include "tune/tensor_extent.hpp"

namespace kiln::faults {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t half = std::int64_t{1} << 62;

std::int64_t random_size() {
  if (*rc::gen::inRange(0, 4) == 0) return *rc::gen::arbitrary<std::int64_t>();
  return *rc::gen::elementOf(std::vector<std::int64_t>{0,
                                                       -1,
                                                       1,
                                                       2,
                                                       3,
                                                       7,
                                                       8,
                                                       64,
                                                       4095,
                                                       4096,
                                                       4097,
                                                       half - 1,
                                                       half,
                                                       half + 1,
                                                       largest - 1,
                                                       largest,
                                                       lowest,
                                                       lowest + 1,
                                                       std::int64_t{1} << 32,
                                                       (std::int64_t{1} << 31) - 1,
                                                       std::int64_t{1} << 46});
}

/// "bucket = ..., max = ..." of an axis, with numbers from everywhere.
std::string random_axis() {
  const std::int64_t multiple = *rc::gen::elementOf(std::vector<std::int64_t>{1, 1, 1, 7, 8, 4096, half});
  // Mostly a maximum that is a multiple, so that the manifest is read: the ends of 64 bits among them.
  const std::int64_t max = *rc::gen::elementOf(
      std::vector<std::int64_t>{largest - largest % multiple, multiple, half, half / 8 * 7, 4096 * 7, random_size()});
  const std::int64_t a = random_size(), b = random_size();
  const std::vector<std::string> policies = {
      "\"pow2\"", "\"exact\"", fmt::format("{{ policy = \"edges\", edges = [{}, {}, {}] }}", a, b, max),
      fmt::format(
          "{{ policy = \"pow2_steps\", pow2_until = 64, steps = [{{ until = {}, step = {} }}, {{ until = {}, step = {} }}] }}",
          a, multiple, max, multiple)};
  const std::string min = *rc::gen::inRange(0, 2) == 0 ? "" : fmt::format(", min = {}", random_size());
  return fmt::format("bucket = {}, max = {}, multiple_of = {}{}", *rc::gen::elementOf(policies), max, multiple, min);
}

std::optional<manifest::Op> op_with_axis(const std::string& axis) {
  const std::string op = fmt::format(R"([op]
summary  = "one axis"
revision = 1
[axes]
n = {{ {} }}
[tensors]
x = {{ shape = ["n"], dtype = "f32", output = true }}
[reference]
[[reference.pass]]
kernel = "k"
grid = [1]
block = [1]
args = ["x"]
)",
                                     axis);
  const std::vector<manifest::SourceFile> files = {
      {"op.toml", op},
      {"one.toml", "[[pass]]\nkernel = \"k\"\ngrid = [\"n\"]\nblock = [1]\nargs = [\"x\", \"n\"]\n"},
      {"one.cuh", ""},
      {"reference.cuh", ""}};
  try {
    return manifest::parse_op("one_axis", "ops/one_axis", files);
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::bad_manifest);
    return std::nullopt;
  }
}

/// True when `work` ends well or in an Error of one of these kinds.
template <class Work>
bool is_typed(Work work, std::initializer_list<ErrorKind> kinds = {ErrorKind::bad_input}) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    return std::find(kinds.begin(), kinds.end(), error.kind()) != kinds.end() &&
           std::string_view(error.what()).size() > 10;
  }
}

}  // namespace

TEST_CASE("fault 22: on any axis any 64 bits are a size with a bucket around it, or a typed error") {
  std::int64_t sizes = 0;
  const bool held = rc::check("axes and sizes", [&] {
    const std::string axis = random_axis();
    RC_LOG() << axis;
    const auto op = op_with_axis(axis);
    if (!op) return;
    for (int i = 0; i < 20; ++i, ++sizes) {
      Problem problem;
      problem.axes[0] = random_size();
      RC_LOG() << " n=" << problem.axes[0];
      const bool valid = manifest::is_valid(*op, problem);
      RC_ASSERT(is_typed([&] { manifest::check_problem(*op, problem); }));
      const std::vector<std::string> word = {"n=" + std::to_string(problem.axes[0])};
      bool parsed = true;
      try {
        RC_ASSERT(cli::parse_problem(*op, word) == problem);
      } catch (const Error& error) {
        RC_ASSERT(error.kind() == ErrorKind::bad_input);
        parsed = false;
      }
      RC_ASSERT(parsed == valid);
      const Problem bucket = manifest::bucket_of(*op, problem);  // of any number, too: it must compute
      if (!valid) continue;
      RC_ASSERT(bucket.axes[0] >= problem.axes[0]);
      RC_ASSERT(bucket.axes[0] <= op->axes[0].maximum);
      RC_ASSERT(manifest::bucket_of(*op, bucket) == bucket);
      const Problem low = manifest::low_corner(*op, bucket);
      RC_ASSERT(manifest::is_valid(*op, low));
      RC_ASSERT(manifest::bucket_of(*op, low) == bucket);
      RC_ASSERT(low.axes[0] <= problem.axes[0] || op->axes[0].multiple_of > 1);
    }
  });
  CHECK(held);
  tally(22, sizes, "sizes on random axes");
}

TEST_CASE("fault 22: ranges and draws over any axis compute, or are refused") {
  std::int64_t ranges = 0;
  const bool held = rc::check("ranges", [&] {
    const std::string axis = random_axis();
    RC_LOG() << axis;
    const auto op = op_with_axis(axis);
    if (!op) return;
    const std::vector<std::string> words = {fmt::format("n={}..{}", random_size(), random_size())};
    RC_LOG() << " " << words[0];
    RC_ASSERT(is_typed([&] {
      const cli::ProblemSet set = cli::parse_problem_set(*op, words);
      for (const Problem& bucket : cli::buckets_of(*op, set, 100)) RC_ASSERT(manifest::is_valid(*op, bucket));
    }));
    RC_ASSERT(is_typed([&] {
      cli::Draw draw;
      draw.count = 3;
      draw.distribution = *rc::gen::elementOf(std::vector{cli::Distribution::uniform, cli::Distribution::lognormal});
      const cli::ProblemSet set = cli::parse_problem_set(*op, words);
      if (set.axes[0][0].high - set.axes[0][0].low < 1000) return;  // few legal sizes are looked for long
      for (const Problem& drawn : cli::draw_problems(*op, set, draw)) RC_ASSERT(manifest::is_valid(*op, drawn));
    }));
    RC_ASSERT(is_typed([&] { (void)cli::sample_problem(*op, {}); }));
    ++ranges;
  });
  CHECK(held);
  // The last size that there is ends a range; no size comes after it.
  const auto op = op_with_axis("bucket = \"pow2\", max = 9223372036854775807");
  const std::vector<std::string> all = {"n=1..9223372036854775807"}, last = {"n=9223372036854775807"};
  CHECK(cli::buckets_of(*op, cli::parse_problem_set(*op, all)).size() == 64);
  CHECK(cli::buckets_of(*op, cli::parse_problem_set(*op, last)).size() == 1);
  tally(22, ranges + 2, "ranges on random axes");
}

TEST_CASE("fault 22: a tensor's extent is a count of its memory, or a typed error") {
  std::int64_t extents = 0;
  const bool held = rc::check("shapes and strides", [&] {
    const int rank = *rc::gen::inRange(1, 5);
    manifest::Tensor tensor;
    tensor.name = "x";
    for (int i = 0; i < rank; ++i) {
      tensor.shape.push_back(manifest::Expression::constant(random_size()));
      tensor.strides.push_back(manifest::Expression::constant(random_size()));
    }
    manifest::Op op;
    op.name = "op";
    try {
      const tune::TensorExtent extent = tune::extent_of(op, tensor, {});
      RC_ASSERT(extent.elements >= 0);
      RC_ASSERT(extent.elements <= std::int64_t{1} << 46);
      RC_ASSERT(extent.count() >= 0);
      RC_ASSERT((extent.count() == 0) == (extent.elements == 0));
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::bad_input);
    }
    ++extents;
  });
  CHECK(held);
  tally(22, extents, "tensor shapes and strides");
}

TEST_CASE(
    "fault 22: geometry that leaves 64 bits, or what a launch can have, is a typed error and nothing is launched") {
  struct Edit {
    const char *file, *from, *to;
  };
  const std::vector<Edit> edits = {
      {"tiled.toml", "[\"rows\"]", "[\"0\"]"},
      {"tiled.toml", "[\"rows\"]", "[\"0 - rows\"]"},
      {"tiled.toml", "[\"rows\"]", "[\"rows * 9223372036854775807\"]"},
      {"tiled.toml", "[\"rows\"]", "[\"rows / (rows - rows)\"]"},
      {"tiled.toml", "[\"rows\"]", "[\"ceil_div(rows, 0)\"]"},
      {"tiled.toml", "[\"rows\"]", "[\"log2(rows - rows)\"]"},
      {"tiled.toml", "[\"rows\"]", "[\"4611686018427387904\"]"},
      {"tiled.toml", "[\"rows\"]", "[\"2147483648\"]"},
      {"tiled.toml", "[\"rows\"]", "[1, 65536]"},
      {"tiled.toml", "[\"rows\"]", "[1, 1, 65536]"},
      {"tiled.toml", "[\"rows\"]", "[\"rows\", -1]"},
      {"tiled.toml", "[\"threads\"]", "[0]"},
      {"tiled.toml", "[\"threads\"]", "[\"0 - threads\"]"},
      {"tiled.toml", "[\"threads\"]", "[\"threads * 4611686018427387904\"]"},
      {"tiled.toml", "[\"threads\"]", "[2147483648]"},
      {"tiled.toml", "[\"threads\"]", "[65536, 65536, 65536]"},
      {"tiled.toml", "block  =", "shared = -1\nblock  ="},
      {"tiled.toml", "block  =", "shared = 4294967296\nblock  ="},
      {"tiled.toml", "block  =", "shared = 4294967360\nblock  ="},
      {"tiled.toml", "block  =", "shared = 9223372036854775807\nblock  ="},
      {"tiled.toml", "block  =", "shared = \"threads * 9223372036854775807\"\nblock  ="},
      {"tiled.toml", "block  =", "cluster = [65536, 65536]\nblock  ="},
      {"tiled.toml", "block  =", "cluster = [0]\nblock  ="},
      {"tiled.toml", "block  =", "cluster = [2147483647, 2147483647, 2147483647]\nblock  ="},
      {"tiled.toml", "\"cols\", \"factor\"", "{ value = \"stride * 4294967296\", type = \"i32\" }, \"factor\""},
      {"tiled.toml", "\"cols\", \"factor\"", "{ value = \"0 - stride\", type = \"u32\" }, \"factor\""},
      {"tiled.toml", "\"cols\", \"factor\"", "{ value = \"0 - stride\", type = \"u64\" }, \"factor\""},
      {"tiled.toml", "\"cols\", \"factor\"",
       "{ value = \"stride * 9223372036854775807\", type = \"i64\" }, \"factor\""},
      {"tiled.toml", "\"cols % vector == 0\"", "\"cols % (vector - vector) == 0\""},
      {"tiled.toml", "\"cols % vector == 0\"", "\"cols * 9223372036854775807 > 0\""},
      {"tiled.toml", "x = \"vector * sizeof(dtype)\"", "x = \"vector * 9223372036854775807\""},
      {"tiled.toml", "x = \"vector * sizeof(dtype)\"", "x = 0"},
      {"tiled.toml", "x = \"vector * sizeof(dtype)\"", "x = -8"},
      {"op.toml", "min = \"cols\"", "min = \"cols\", default = \"cols * 4611686018427387904\""},
      {"op.toml", "min = \"cols\"", "min = \"cols * 9223372036854775807\""},
      {"op.toml", "min = \"cols\"", "min = \"9223372036854775807\""},
  };
  const Machine machine;
  for (const Edit& edit : edits) {
    CAPTURE(std::string(edit.to));
    const TemporaryFolder folder;
    const CopiedOp op(folder);
    op.edit(edit.file, edit.from, edit.to);
    const std::int64_t launched = query("launches");
    const bool typed = is_typed(
        [&] {
          const Engine engine(op.options(tuned_overlay(folder), MissPolicy::error));
          ScaleCall call(engine, 64, 128);
          (void)engine.explain(call.op, call.problem);
          call.launch(machine.stream());
          FAIL_CHECK("it was launched");
        },
        {ErrorKind::bad_input, ErrorKind::bad_manifest, ErrorKind::bad_expression, ErrorKind::not_tuned,
         ErrorKind::driver_failed});
    CHECK(typed);
    CHECK(query("launches") == launched);
  }
  tally(22, static_cast<std::int64_t>(edits.size()), "manifests whose geometry does not compute");
}

TEST_CASE("fault 22: more tensor maps than a pass may have are refused by file and line") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  std::string maps;
  for (int i = 0; i < 9; ++i) maps += "{ tma = \"x\", box = [8, 8] }, ";
  op.edit("tiled.toml", "args   = [", "args   = [" + maps);
  const Error error = error_of([&] { (void)op.load(); });
  CHECK(error.kind() == ErrorKind::bad_manifest);
  CHECK(contains(error.what(), "9 TMA arguments"));
  tally(22, 1, "passes with too many tensor maps");
}

TEST_CASE("fault 22: any number in a problem or an argument is refused with its name, in every entry point") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(e2e::options(tuned_overlay(folder), MissPolicy::error));
  const ScaleCall call(engine, 64, 128);
  const Plan plan = call.op.plan(call.problem);
  std::int64_t cases = 0;
  for (const std::int64_t size : {std::int64_t{-1}, std::int64_t{4097}, half, largest, lowest}) {
    CAPTURE(size);
    for (const char* axis : {"rows", "cols"}) {
      Problem problem = call.problem;
      problem[call.op.axis(axis)] = size;
      const std::string_view other = axis == std::string_view("rows") ? "cols" : "rows";
      const auto refuses = [&](const auto& work) {
        const Error error = error_of(work);
        CHECK(error.kind() == ErrorKind::bad_input);
        CHECK_MESSAGE(contains(error.what(), axis), std::string(error.what()));
        ++cases;
      };
      refuses([&] { (void)call.op.problem({{axis, size}, {other, 128}}); });
      refuses([&] { call.op.launch(problem, call.arguments, machine.stream()); });
      refuses([&] { (void)call.op.plan(problem); });
      refuses([&] { (void)plan.launch(problem, call.arguments, machine.stream()); });
      refuses([&] { (void)engine.explain(call.op, problem); });
    }
  }
  for (const double stride : {0.0, -1.0, 1.0, -1e300, -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN(), -9.3e18}) {
    CAPTURE(stride);
    Arguments arguments = call.arguments;
    arguments.set(call.op.runtime("stride"), stride);
    const Error error = error_of([&] { call.op.launch(call.problem, arguments, machine.stream()); });
    CHECK(error.kind() == ErrorKind::bad_input);
    CHECK(contains(error.what(), "stride"));
    ++cases;
  }
  Arguments arguments = call.arguments;
  for (const double huge : {1e19, 1e300, std::numeric_limits<double>::infinity(), 0x1p63}) {
    arguments.set(call.op.runtime("stride"), huge);
    CHECK(arguments.runtime[call.op.runtime("stride").index] == largest);
    ++cases;
  }
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  tally(22, cases, "numbers in problems and arguments of a call");
}

TEST_CASE("fault 22: any number on a command line, in a workload or in a trace is refused with its axis") {
  const TemporaryFolder folder;
  std::int64_t cases = 0;
  for (const char* size : {"-1", "4097", "4611686018427387904", "9223372036854775807", "-9223372036854775808",
                           "9223372036854775808", "99999999999999999999999", "1e3", "0x10", "1.5", "1..0", "-1..5"}) {
    write(folder / "workload.toml",
          fmt::format("[[workload]]\nop = \"scale\"\naxes = {{ rows = \"{}\", cols = 128 }}\n", size));
    write(folder / "trace", fmt::format("scale rows={} cols=128 dtype=f32\n", size));
    for (const std::string& words :
         {fmt::format("tune scale rows={} cols=128", size), fmt::format("explain scale rows={} cols=128", size),
          fmt::format("run scale rows={} cols=128 factor=1", size),
          fmt::format("trace scale rows={} cols=128 --count 1", size), "prewarm " + (folder / "workload.toml").string(),
          "replay --dry-run " + (folder / "trace").string()}) {
      const std::string said = expect(2, "kiln " + words + (words.starts_with("trace") ? own_ops() : globals(folder)));
      CHECK_MESSAGE(contains(said, "rows"), said);
      ++cases;
    }
  }
  tally(22, cases, "numbers on command lines, in workloads and in traces");
}

}  // namespace kiln::faults

#include "manifest/variant.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <limits>

#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "manifest/problem_set.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

Op scale() { return testing::scale_folder().parse(); }

std::string settings_refusal(const std::vector<Setting>& settings) {
  try {
    make_problem(scale(), settings);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_input);
    return error.what();
  }
  return "accepted";
}

Problem problem(std::int64_t rows, std::int64_t cols, std::uint8_t dtype = 0, std::uint8_t mode = 0) {
  Problem result;
  result.axes = {rows, cols};
  result.selections = {dtype, mode};
  return result;
}

}  // namespace

TEST_CASE("a problem is read as a person writes it, and written back") {
  const Op op = scale();
  const Problem read = make_problem(op, std::vector<Setting>{{"cols", "64"}, {"dtype", "f32"}, {"rows", "5"}});
  CHECK(read == problem(5, 64, 1));
  CHECK(to_string(op, read) == "rows=5 cols=64 dtype=f32 mode=plain");
}

TEST_CASE("a wrong setting is refused with the name and what was expected") {
  const std::tuple<std::vector<Setting>, const char*> cases[] = {
      {{{"rowz", "1"}}, "'rowz' is unknown (did you mean 'rows'?)"},
      {{{"factor", "1"}},
       "'factor' is a run-time value, which each launch gives and no problem or bucket has, expected 'rows', 'cols', "
       "'dtype' or 'mode'"},
      {{{"stride", "1"}}, "'stride' is a run-time value"},
      {{{"x", "1"}}, "'x' is a tensor, which each launch gives and no problem or bucket has, expected 'rows'"},
      {{{"rows", "1"}, {"rows", "2"}}, "'rows' is given twice"},
      {{{"rows", "1"}}, "axis 'cols' is missing"},
      {{{"rows", "many"}, {"cols", "8"}}, "axis 'rows' is 'many', expected an integer"},
      {{{"rows", ""}, {"cols", "8"}}, "expected an integer"},
      {{{"rows", "0"}, {"cols", "8"}}, "axis 'rows' is 0, expected 1 or more"},
      {{{"rows", "-1"}, {"cols", "8"}}, "axis 'rows' is -1, expected 1 or more"},
      {{{"rows", "4611686018427387904"}, {"cols", "8"}}, "expected at most 4096"},
      {{{"rows", "9223372036854775807"}, {"cols", "8"}}, "expected at most 4096"},
      {{{"rows", "9223372036854775808"}, {"cols", "8"}}, "which 64 bits cannot hold"},
      {{{"rows", "1"}, {"cols", "12"}}, "axis 'cols' is 12, expected a multiple of 8"},
      {{{"rows", "1"}, {"cols", "8"}, {"dtype", "f16"}},
       "'dtype' is 'f16' (did you mean 'bf16'?), expected 'bf16' or 'f32'"},
      {{{"rows", "1"}, {"cols", "8"}, {"dtype", "'; DROP TABLE records"}}, "'dtype' is ''; DROP TABLE records'"},
      {{{std::string(1 << 20, 'x'), "1"}}, "is unknown"},
      {{{std::string("rows\0x", 6), "1"}}, "'rows\\x00x' is unknown"},
  };
  for (const auto& [settings, wanted] : cases) {
    const std::string message = settings_refusal(settings);
    CAPTURE(message);
    CHECK(message.find(wanted) != std::string::npos);
    CHECK(message.size() < 400);
  }
}

TEST_CASE("a part of a problem is refused for what a problem is, but not for what it lacks") {
  const Op op = scale();
  const auto part_refusal = [&](const char* name, const char* size) -> std::string {
    try {
      make_part(op, std::vector<Setting>{{name, size}});
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::bad_input);
      return error.what();
    }
    return "accepted";
  };
  CHECK(part_refusal("rows", "-5") == "op 'scale': axis 'rows' is -5, expected 0 or more");
  CHECK(part_refusal("rows", "4097") == "op 'scale': axis 'rows' is 4097, expected at most 4096");
  CHECK(part_refusal("cols", "12") == "op 'scale': axis 'cols' is 12, expected a multiple of 8");
  CHECK(part_refusal("rows", "0") == "accepted");
  CHECK(part_refusal("cols", "64") == "accepted");
}

TEST_CASE("a size of 0 is taken only from a problem that names its op") {
  const Op op = scale();
  CHECK_THROWS_WITH_AS(check_problem(op, Problem{}, Zeros::taken),
                       "op 'scale': the problem has a size of 0 and was never made; make it by Op::problem, or by "
                       "Op::binding and Op::bind",
                       Error);
  CHECK_THROWS_AS(check_problem(op, problem(0, 8), Zeros::taken), Error);
  CHECK_NOTHROW(check_problem(op, problem(5, 8), Zeros::taken));
  const std::vector<Setting> none = {{"rows", "0"}, {"cols", "8"}};
  CHECK_NOTHROW(check_problem(op, make_problem(op, none, Zeros::taken), Zeros::taken));
}

TEST_CASE("numbers that are no element type have a name and no size") {
  CHECK(kiln::to_string(static_cast<DType>(77)) == "unknown");
  CHECK(kiln::size_of(static_cast<DType>(77)) == 0);
}

TEST_CASE("sizes at the ends of 64 bits are typed errors, never buckets") {
  const Op op = scale();
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 62,
                                  std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    CHECK(!is_valid(op, problem(size, 8)));
    CHECK_THROWS_AS(check_problem(op, problem(size, 8)), Error);
  }
  CHECK(!is_valid(op, problem(1, 8, 2)));
  CHECK(is_valid(op, problem(1, 8, 1, 1)));
}

TEST_CASE("a bucket holds its own corners, and the low corner keeps to multiples") {
  Op op = scale();
  op.axes[0].multiple_of = 8;
  CHECK(low_corner(op, problem(64, 24)).axes[0] == 40);
  CHECK(rc::check([&] {
    const Problem drawn = problem(8 * *rc::gen::inRange(1, 513), 8 * *rc::gen::inRange(1, 8193));
    const Problem bucket = bucket_of(op, drawn);
    RC_ASSERT(is_valid(op, bucket));
    const Problem corner = low_corner(op, bucket);
    RC_ASSERT(is_valid(op, corner));
    RC_ASSERT(bucket_of(op, corner) == bucket);
    RC_ASSERT(corner.axes[0] <= drawn.axes[0]);
  }));
}

TEST_CASE("problems of one bucket have one key, and another bucket has another") {
  const Op op = scale();
  CHECK(rc::check([&] {
    const auto draw = [] {
      return problem(*rc::gen::inRange(1, 4097), 8 * *rc::gen::inRange(1, 4),
                     static_cast<std::uint8_t>(*rc::gen::inRange(0, 2)));
    };
    const Problem a = bucket_of(op, draw());
    const Problem b = bucket_of(op, draw());
    const auto key = [&](const Problem& bucket) {
      return Bucket({op, testing::h200(), Regime::cold_l2}, bucket).key();
    };
    RC_ASSERT((key(a) == key(b)) == (a == b));
  }));
}

TEST_CASE("a frame holds the problem, run-time defaults, device facts and the config, in this order") {
  const Op op = scale();
  const Implementation& fast = op.implementations.at(0);
  const auto frame = default_of(fast).frame({op, testing::h200()}, problem(5, 64, 1));
  CHECK(frame == std::vector<std::int64_t>{5, 64, 0, 64, 1, 0, 90, 132, 232448, 233472, 65536, 2048, 62914560, 256, 4});
  CHECK(static_cast<int>(frame.size()) == fast.symbols.size());
  CHECK(frame_of({op, testing::h200()}, problem(5, 64)).size() == 13);
  CHECK(op.dtype_of(op.tensors[0], frame) == DType::f32);
}

TEST_CASE("a problem whose types and choices break a rule of the op is refused with the rule and its message") {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(
      folder.op, "revision = 3\n",
      "revision = 3\nallowed = [{ when = 'mode == \"plain\" || dtype == \"f32\"', message = \"only f32 saturates\" }, '1']\n");
  const Op op = folder.parse();
  const auto make = [&](const char* dtype, const char* mode) {
    const std::array<Setting, 4> settings = {{{"rows", "4"}, {"cols", "8"}, {"dtype", dtype}, {"mode", mode}}};
    return make_problem(op, settings);
  };
  CHECK(is_valid(op, make("bf16", "plain")));
  CHECK(is_valid(op, make("f32", "saturate")));
  CHECK_THROWS_WITH_AS(
      make("bf16", "saturate"),
      "op 'scale': dtype=bf16 mode=saturate is not allowed: only f32 saturates; the rule is 'mode == \"plain\" || dtype == \"f32\"'",
      Error);
  Problem broken = make("f32", "saturate");
  broken.selections[0] = 0;
  CHECK_FALSE(is_valid(op, broken));
  CHECK_FALSE(parse_bucket(op, to_string(op, broken)));

  // Of lists of types and choices those that are allowed are left.
  ProblemSet set;
  set.axes = {{{8, 8}}, {{8, 8}}};
  set.selections = {{0, 1}, {0, 1}};
  CHECK(buckets_of(op, set).size() == 3);
  set.selections = {{0}, {1}};
  CHECK_THROWS_WITH_AS(static_cast<void>(buckets_of(op, set)),
                       doctest::Contains("dtype=bf16 mode=saturate is not allowed"), Error);
}

TEST_CASE("a default that overflows is an error, not a number") {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, "default = \"cols\"", "default = \"cols * 9223372036854775807\"");
  const Op op = folder.parse();
  CHECK_THROWS_WITH_AS(frame_of({op, testing::h200()}, problem(5, 64)), doctest::Contains("overflow of 64 bits"),
                       Error);
}

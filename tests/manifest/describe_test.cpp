// What an op tells of itself.
#include "manifest/describe.hpp"

#include <doctest/doctest.h>

#include "kiln/error.hpp"
#include "manifest/problem.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

Problem settled(const Op& op, const std::vector<Setting>& settings) { return make_problem(op, settings, Zeros::taken); }

}  // namespace

TEST_CASE("an op tells its axes, types, choices, values and tensors, as its manifest has them") {
  const Op op = testing::scale_folder().parse();
  const OpDescription told = describe(op);
  CHECK(told.name == "scale");
  CHECK(told.revision == 3);
  CHECK(told.contract.empty());
  CHECK(told.implementations == std::vector<std::string>{"fast"});
  REQUIRE(told.axes.size() == 2);
  CHECK(told.axes[0].policy == "pow2");
  CHECK(told.axes[1].multiple_of == 8);
  CHECK(told.axes[1].id.index == 1);
  REQUIRE(told.selections.size() == 2);
  CHECK(told.selections[0].is_type);
  CHECK(told.selections[1].default_text == "plain");
  REQUIRE(told.runtime.size() == 2);
  CHECK(told.runtime[0].default_text.empty());
  CHECK(told.runtime[1].bound_text == "cols");
  CHECK_FALSE(told.runtime[1].minimum);
  REQUIRE(told.tensors.size() == 2);
  CHECK(told.tensors[0].strides == std::vector<std::string>{"stride", "1"});
  CHECK(told.tensors[1].output);
  CHECK_FALSE(told.tensors[1].element);
}

TEST_CASE("at a problem it tells sizes, strides, defaults, bounds and alignments") {
  const Op op = testing::scale_folder().parse();
  const DeviceFacts facts = testing::h200();
  const OpDescription told = describe({op, facts}, settled(op, {{"rows", "5"}, {"cols", "64"}, {"dtype", "f32"}}));
  CHECK(told.axes[0].size == 5);
  CHECK(told.axes[0].bucket_low == 5);
  CHECK(told.axes[0].bucket_high == 8);
  CHECK(told.selections[0].value == "f32");
  CHECK(told.runtime[1].default_value == Number(std::int64_t{64}));
  CHECK(told.runtime[1].minimum == Number(std::int64_t{64}));
  CHECK_FALSE(told.runtime[1].maximum);
  CHECK_FALSE(told.runtime[0].default_value);
  const TensorDescription& x = told.tensors[0];
  CHECK(x.element == DType::f32);
  CHECK(x.sizes == std::vector<std::int64_t>{5, 64});
  CHECK(x.default_strides == std::vector<std::int64_t>{64, 1});
  CHECK(x.bytes == 5 * 64 * 4);
  CHECK(x.least_alignment == 16);  // the default's vector of 4
  CHECK(x.best_alignment == 16);
  CHECK(told.tensors[1].least_alignment == 4);
}

TEST_CASE("a problem with a size of 0 is described, one of another op is refused") {
  const Op op = testing::scale_folder().parse();
  const DeviceFacts facts = testing::h200();
  Problem problem = settled(op, {{"rows", "0"}, {"cols", "64"}});
  const OpDescription told = describe({op, facts}, problem);
  CHECK(told.tensors[0].bytes == 0);
  CHECK(told.axes[0].bucket_high == 0);
  problem.op = op.tag + 1;
  CHECK_THROWS_WITH_AS(describe({op, facts}, problem),
                       "op 'scale': the problem is another op's; make it by this op's Op::problem", Error);
}

TEST_CASE("an op's contract is the comment at the head of its op.toml") {
  testing::Folder folder = testing::scale_folder();
  folder.op = "# y = x * factor.\n#\n#   Rows are apart.\n\n# not this\n" + folder.op;
  CHECK(contract_of(folder.parse()) == "y = x * factor.\n\n  Rows are apart.\n");
}

TEST_CASE("the JSON has what the description has, and null where there is nothing") {
  const Op op = testing::scale_folder().parse();
  const auto plain = to_json(describe(op));
  CHECK(plain["contract"].is_null());
  CHECK(plain["tensors"][0]["shape"] == nlohmann::ordered_json{"rows", "cols"});
  CHECK_FALSE(plain["tensors"][0].contains("sizes"));
  const DeviceFacts facts = testing::h200();
  const auto at = to_json(describe({op, facts}, settled(op, {{"rows", "5"}, {"cols", "64"}})));
  CHECK(at["axes"][0]["bucket_high"] == 8);
  CHECK(at["runtime"][1]["default_value"] == 64);
  CHECK(at["runtime"][0]["default_value"].is_null());
  CHECK(at["tensors"][0]["element"] == "bf16");
}

// Strides that [tensors] declares, views of tensors, and bounds that are not reached.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/op.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

constexpr const char* declared_before = "stride = { type = \"i64\", default = \"cols\", min = \"cols\" }\n";

/// The op `scale` with x's strides in place of "stride", which [runtime] no longer has.
testing::Folder with_strides(const std::string& strides) {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, declared_before, "");
  folder.op = testing::replaced(folder.op, R"(strides = ["stride", "1"])", "strides = " + strides);
  return folder;
}

std::string text(const std::optional<Expression>& expression) { return expression ? expression->text() : "none"; }

}  // namespace

TEST_CASE("a stride that [tensors] declares is a run-time value of its tensor") {
  const Op op = with_strides(R"([{ name = "stride", default = "cols + 8", min = "cols", verify = 72 }, "1"])").parse();
  REQUIRE(op.runtime.size() == 2);
  CHECK(op.runtime[0].stride_of == -1);
  const Runtime& stride = op.runtime[1];
  CHECK(stride.name == "stride");
  CHECK(stride.type == RuntimeType::i64);
  CHECK(stride.stride_of == 0);
  CHECK(text(stride.default_integer) == "cols + 8");
  CHECK(text(stride.minimum) == "cols");
  CHECK(text(stride.verify_integer) == "72");
  CHECK(op.tensors[0].strides[0].text() == "stride");
  CHECK(op.runtime_of(op.tensors[0].strides[0]) == 1);
  CHECK(op.runtime_of(op.tensors[1].strides[0]) == std::nullopt);
}

TEST_CASE("a stride without a default is that of dense rows over the strides that a launch gives further in") {
  const Op op = with_strides(R"([{ name = "stride", min = 1 }, { name = "inner" }])").parse();
  REQUIRE(op.runtime.size() == 3);
  CHECK(op.runtime[1].name == "inner");  // innermost first, since outer defaults read it
  CHECK(text(op.runtime[1].default_integer) == "1");
  CHECK(op.runtime[2].name == "stride");
  CHECK(text(op.runtime[2].default_integer) == "cols * inner");
  testing::Folder folder = with_strides(R"([{ name = "stride" }, "2"])");
  CHECK(text(folder.parse().runtime[1].default_integer) == "cols * 2");
  folder = with_strides(R"([{ name = "stride" }, 1])");
  CHECK(text(folder.parse().runtime[1].default_integer) == "cols");
}

TEST_CASE("a view hands a kernel the strides that op.toml does not fix") {
  testing::Folder folder = with_strides(R"([{ name = "stride" }, "1"])");
  folder.implementation = testing::replaced(folder.implementation, R"(args    = ["x", "y",)",
                                            R"(args    = [{ view = "x" }, { view = "y" },)");
  const Op op = folder.parse();
  const std::vector<Argument>& arguments = op.implementations[0].passes[0].arguments;
  CHECK(arguments[0].kind == ArgumentKind::view);
  CHECK(arguments[0].index == 0);
  REQUIRE(arguments[0].strides.size() == 1);
  CHECK(arguments[0].strides[0].text() == "stride");
  CHECK(arguments[1].kind == ArgumentKind::view);
  REQUIRE(arguments[1].strides.size() == 1);
  CHECK(arguments[1].strides[0].text() == "(cols)");
}

TEST_CASE("a pack hands a kernel one structure of tensors, views and values") {
  testing::Folder folder = with_strides(R"([{ name = "stride" }, "1"])");
  folder.implementation =
      testing::replaced(folder.implementation, R"(args    = ["x", "y",)",
                        R"(args    = [{ pack = [{ view = "x" }, "y", { value = "rows", type = "i64" }] },)");
  const Op op = folder.parse();
  const Argument& pack = op.implementations[0].passes[0].arguments[0];
  CHECK(pack.kind == ArgumentKind::pack);
  REQUIRE(pack.members.size() == 3);
  CHECK(pack.members[0].kind == ArgumentKind::view);
  CHECK(pack.members[1].kind == ArgumentKind::tensor);
  CHECK(pack.members[2].kind == ArgumentKind::expression);
  CHECK(pack.words() == 4);
}

TEST_CASE("a view may have strides of its own, show a workspace, and be left out") {
  testing::Folder folder = testing::scale_folder();
  folder.implementation = testing::replaced(
      folder.implementation, R"(args    = ["x", "y", "partial",)",
      R"(args    = [{ view = "x", strides = ["0", "stride"], when = 'mode == "plain"' }, { view = "partial", strides = [4] },)");
  const Op op = folder.parse();
  const std::vector<Argument>& arguments = op.implementations[0].passes[0].arguments;
  CHECK(arguments[0].kind == ArgumentKind::view);
  REQUIRE(arguments[0].strides.size() == 2);
  CHECK(arguments[0].strides[0].constant_value() == 0);
  CHECK(arguments[0].when.has_value());
  CHECK(arguments[1].kind == ArgumentKind::workspace_view);
  CHECK(arguments[1].index == 0);
  CHECK(arguments[1].strides[0].constant_value() == 4);
}

TEST_CASE("wrong strides and views are refused by name") {
  const auto refused = [](const std::string& strides, const char* said) {
    const std::string got = testing::refusal_of(with_strides(strides));
    CHECK_MESSAGE(got.find(said) != std::string::npos, got);
  };
  refused(R"([{ default = "cols" }, "1"])", "op.toml:14: found no 'name' in a stride, expected one");
  refused(R"([{ name = "stride", type = "i64" }, "1"])", "the unknown key 'type' in a stride of 'x'");
  refused(R"([{ name = "rows" }, "1"])", "op.toml:14: ");
  refused(R"([{ name = "stride", default = "stride" }, "1"])",
          "found 'stride' in an expression of 'stride', expected only run-time values declared before it");
  refused(R"([{ name = "stride", min = 1, above = 0 }, "1"])", "found 'min' and 'above' on 'stride', expected one");
  refused(R"([{ name = "stride" }])", "found 1 strides of 'x', expected 2");

  const auto refused_argument = [](const char* argument, const char* said) {
    testing::Folder folder = testing::scale_folder();
    folder.implementation =
        testing::replaced(folder.implementation, R"(args    = ["x", "y",)", R"(args    = [)" + std::string(argument));
    const std::string got = testing::refusal_of(folder);
    CHECK_MESSAGE(got.find(said) != std::string::npos, got);
  };
  refused_argument(R"({ view = "z" }, )", "'z' as the tensor or workspace of a view argument");
  refused_argument(R"({ view = "x", box = [1] }, )", "the unknown key 'box' in a view argument");
  refused_argument(R"({ view = "partial" }, )", "a view of a workspace without 'strides'");
  refused_argument(R"({ view = "x", strides = ["missing"] }, )", "the unknown name 'missing'");
  std::string many;
  for (int i = 0; i < 20; ++i) many += R"({ view = "x", strides = [0, 0, 0, 0, 0, 0, 0] }, )";
  refused_argument(many.c_str(), "found 165 words of arguments, those of views and packs among them, expected at most");
}

TEST_CASE("an integer has bounds that it reaches or does not reach, at both ends") {
  const auto minimum = [](const std::string& bound) {
    return text(with_strides(R"([{ name = "stride", above = )" + bound + R"( }, "1"])").parse().runtime[1].minimum);
  };
  CHECK(minimum("0") == "1");
  CHECK(minimum(R"("cols / 2")") == "(cols / 2) + 1");
  CHECK_FALSE(testing::refusal_of(with_strides(R"([{ name = "stride", above = 9223372036854775807 }, "1"])")) ==
              "accepted");
  const auto bounds = [](const std::string& keys) {
    return bound_text(with_strides(R"([{ name = "stride", )" + keys + R"( }, "1"])").parse().runtime[1]);
  };
  CHECK(bounds(R"(max = "2 * cols")") == "at most 2 * cols");
  CHECK(bounds(R"(min = 1, below = 9)") == "1 to 8");
  CHECK(bounds(R"(above = "cols", below = "rows")") == "(cols) + 1 to (rows) - 1");
  const std::string both = testing::refusal_of(with_strides(R"([{ name = "stride", max = 1, below = 2 }, "1"])"));
  CHECK_MESSAGE(both.find("found 'max' and 'below' on 'stride', expected one") != std::string::npos, both);
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, R"(stride = { type = "i64", default = "cols", min = "cols" })",
                                R"(stride = { type = "i64", default = "cols", above = 7, above_when = "1" })");
  const std::string said = testing::refusal_of(folder);
  CHECK_MESSAGE(said.find("'above_when' on 'stride', which is an integer") != std::string::npos, said);
}

TEST_CASE("a real has bounds that it reaches or does not reach, an upper one beside a lower one") {
  const auto with_factor = [](const std::string& keys) {
    testing::Folder folder = testing::scale_folder();
    folder.op = testing::replaced(folder.op, "factor = \"f32\"", R"(factor = { type = "f32", )" + keys + " }");
    return folder;
  };
  const auto bounds = [&](const char* keys) { return bound_text(with_factor(keys).parse().runtime[0]); };
  CHECK(bounds("above = 0") == "above 0");
  CHECK(bounds("min = 0, below = 1") == "at least 0 and below 1");
  CHECK(bounds("above = 0, max = 2.5, default = 2.5") == "above 0 and at most 2.5");
  const auto refused = [&](const char* keys, const char* said) {
    const std::string got = testing::refusal_of(with_factor(keys));
    CHECK_MESSAGE(got.find(said) != std::string::npos, got);
  };
  refused("below = 1", "'factor' with an upper bound alone");
  refused("above = 0, above_when = '1', below = 1", "'factor' with an upper bound alone");
  refused("min = 0, above_when = '1'", "'above_when' on 'factor'");
  refused("max = 1, below = 1", "found 'max' and 'below' on 'factor'");
  refused("min = 0, below = 1, default = 1.0", "'factor' = 1 beside at least 0 and below 1");
  refused("min = 0, max = 1, verify = 1.5", "beside at least 0 and at most 1");
}

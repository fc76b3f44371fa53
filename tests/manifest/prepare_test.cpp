// [prepare] of op.toml: what is read of it, and what is refused.
#include <doctest/doctest.h>

#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;
using testing::replaced;

namespace {

/// The op of the fixture with x prepared.
testing::Folder prepared_folder() {
  testing::Folder folder = testing::scale_folder();
  folder.op = replaced(folder.op, "strides = [\"stride\", \"1\"], dtype = \"dtype\" }",
                       "strides = [\"stride\", \"1\"], dtype = \"dtype\", fill = \"prepared\" }");
  folder.op = replaced(folder.op, "[reference]\n", R"toml([prepare]
source = "reference.cuh"
cases  = ["equal", "skewed"]
[[prepare.pass]]
kernel = "make<{dtype}>"
grid   = ["rows"]
block  = ["256"]
when   = 'case == "skewed"'
args   = ["x", "rows", "factor", "seed", "case", { value = "seed % rows", type = "i32" }]
[reference]
)toml");
  return folder;
}

}  // namespace

TEST_CASE("[prepare] holds its cases and passes, in which seed and case are names") {
  const Op op = prepared_folder().parse();
  REQUIRE(op.prepare.has_value());
  CHECK(op.tensors[0].fill == Fill::prepared);
  CHECK(op.prepare->source == "reference.cuh");
  CHECK(op.prepare->cases == std::vector<std::string>{"equal", "skewed"});
  CHECK(op.prepare->timed == std::vector<std::size_t>{0});
  REQUIRE(op.prepare->passes.size() == 1);
  const Pass& pass = op.prepare->passes.front();
  const Argument &seed = pass.arguments[3], &which = pass.arguments[4];
  CHECK(seed.type == RuntimeType::u64);
  CHECK(seed.value.uses(op.first_parameter()));
  CHECK(which.type == RuntimeType::i32);
  CHECK(which.value.uses(op.first_parameter() + 1));
  CHECK(pass.when->uses(op.first_parameter() + 1));
  CHECK_FALSE(testing::scale_folder().parse().prepare.has_value());
}

TEST_CASE("the cases that are timed are those that 'timed' names") {
  testing::Folder folder = prepared_folder();
  folder.op = replaced(folder.op, "\"skewed\"]\n", "\"skewed\"]\ntimed = [\"skewed\", \"equal\"]\n");
  CHECK(folder.parse().prepare->timed == std::vector<std::size_t>{1, 0});
}

TEST_CASE("a mistake in [prepare] is named with its line") {
  struct Mistake {
    const char *from, *to, *message;
  };
  const Mistake mistakes[] = {
      {"cases  = [\"equal\", \"skewed\"]\n", "", "found no 'cases' in [prepare]"},
      {"[\"equal\", \"skewed\"]", "[]", "op.toml:22: found 0 entries in 'cases', expected 1 to 16"},
      {"[\"equal\", \"skewed\"]", "[\"equal\", \"equal\"]", "found the case 'equal' a second time, expected each once"},
      {"[\"equal\", \"skewed\"]", "[\"an equal one\"]", "found 'an equal one' as a case, expected a letter"},
      {"[\"equal\", \"skewed\"]", "[\"equal\", \"skewed\"]\ntimed = [\"eqal\"]",
       "found 'eqal' as a timed case (did you mean 'equal'?)"},
      {"[\"equal\", \"skewed\"]", "[\"equal\", \"skewed\"]\ntimed = []",
       "found no case in 'timed', expected one or more"},
      {"[\"equal\", \"skewed\"]", "[\"equal\", \"skewed\"]\ntimed = [\"equal\", \"equal\"]",
       "found 'equal' twice in 'timed'"},
      {"make<{dtype}>", "make<{seed}>",
       "found 'seed' in the kernel name or 'when' of a pass, expected 'seed' in 'args'"},
      {"'case == \"skewed\"'", "\"seed > 0\"", "found 'seed' in the kernel name or 'when' of a pass"},
      {"[\"x\", \"rows\", \"factor\",", "[\"x\", \"y\", \"factor\",",
       "found the output 'y' in a pass of [prepare], expected inputs"},
      {"[\"x\", \"rows\", \"factor\",", "[\"rows\", \"factor\",", "found no pass of [prepare] with 'x' in 'args'"},
      {", fill = \"prepared\"", "", "op.toml:20: found [prepare] without a tensor that it fills"},
      {"factor = \"f32\"", "factor = \"f32\"\nseed = \"u64\"", "the name 'seed'"},
  };
  for (const Mistake& mistake : mistakes) {
    testing::Folder folder = prepared_folder();
    folder.op = replaced(folder.op, mistake.from, mistake.to);
    const std::string message = testing::refusal_of(folder);
    CAPTURE(mistake.message);
    CAPTURE(message);
    CHECK(message.find(mistake.message) != std::string::npos);
  }
}

TEST_CASE("a tensor is prepared only by an op with [prepare], and 'seed' is no argument elsewhere") {
  testing::Folder folder = testing::scale_folder();
  folder.op = replaced(folder.op, "strides = [\"stride\", \"1\"], dtype = \"dtype\" }",
                       "strides = [\"stride\", \"1\"], dtype = \"dtype\", fill = \"prepared\" }");
  CHECK(testing::refusal_of(folder).find("found fill = \"prepared\" on 'x' without [prepare]") != std::string::npos);
  folder = prepared_folder();
  folder.op = replaced(folder.op, "[\"x\", \"y\", \"rows\",", "[\"x\", \"y\", \"seed\",");
  CHECK(testing::refusal_of(folder).find("found the unknown argument 'seed'") != std::string::npos);
}

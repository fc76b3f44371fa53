// Named expressions of an implementation: they stand for what they name, and mistakes in them are said by name.
#include <doctest/doctest.h>

#include "kiln/error.hpp"
#include "manifest/kernel_name.hpp"
#include "manifest/key.hpp"
#include "manifest/variant.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

/// The small op with these lines as its [terms], and further changes of its implementation.
testing::Folder with_terms(const std::string& lines,
                           std::initializer_list<std::pair<const char*, const char*>> changes = {}) {
  testing::Folder folder = testing::scale_folder();
  std::string& text = folder.implementation;
  for (const auto& [from, to] : changes) text = testing::replaced(text, from, to);
  text = testing::replaced(text, "[constraints]", "[terms]\n" + lines + "[constraints]");
  return folder;
}

/// What the one implementation makes of a config: its kernel's name, then every number that a launch or an estimate takes.
std::pair<std::string, std::vector<std::int64_t>> meaning(const Op& op, const Problem& problem, const Config& config) {
  const Implementation& implementation = op.implementations.at(0);
  const auto frame = Variant{&implementation, config}.frame({op, testing::h200()}, problem);
  std::vector<std::int64_t> numbers;
  const auto add = [&](const Expression& each) { numbers.push_back(each.evaluate(frame).number); };
  for (const Expression& each : implementation.constraints) add(each);
  for (const auto& each : implementation.alignment) add(each.second);
  for (const Workspace& each : implementation.workspaces) add(each.bytes);
  const Pass& pass = implementation.passes.at(0);
  for (const auto* triple : {&pass.grid, &pass.block, &pass.cluster})
    for (const Expression& each : *triple) add(each);
  for (const Expression& each : {*pass.when, pass.shared, pass.programmatic, *pass.model->operations}) add(each);
  for (const Argument& argument : pass.arguments) {
    add(argument.value);
    for (const Expression& each : argument.box) add(each);
    add(argument.swizzle);
    add(argument.when.value_or(Expression::constant(1)));
  }
  return {name_expressions(op, implementation.passes, implementation.symbols, frame).at(0), numbers};
}

}  // namespace

TEST_CASE("a term stands for its expression in everything that an implementation computes") {
  constexpr const char* pass_end = "programmatic = 'PLAIN'\n[pass.model]\noperations = \"rows * WIDTH * 2\"\n";
  const std::initializer_list<std::pair<const char*, const char*>> places = {
      {"\"vector * sizeof(dtype) <= 16\"", "\"WIDTH * 8 <= 160\""},
      {"x = \"vector * sizeof(dtype)\"", "x = \"WIDTH * 2\""},
      {"\"rows * 4\"", "\"ROWS * 4\""},
      {"{vector * 2}", "{WIDTH * 2}"},
      {"\"ceil_div(rows, 4)\", \"2\"", "\"ROWS * 2\", \"WIDTH\""},
      {"block   = [\"threads\"]", "block   = [\"threads / WIDTH\"]"},
      {"cluster = [2]", "cluster = [\"WIDTH - 1\"]"},
      {"\"threads * 4\"", "\"threads * WIDTH\""},
      {"mode == \"plain\"'", "PLAIN && threads > 1'"},
      {"\"ceil_div(rows, 2)\"", "\"ROWS - 1\""},
      {"[16, \"64\"], swizzle = 128", "[\"WIDTH\", \"64\"], swizzle = \"WIDTH > 8 ? 128 : 64\", when = 'PLAIN'"}};
  testing::Folder named = with_terms(
      "width = \"vector + sizeof(dtype)\"\nplain = 'mode == \"plain\"'\n"
      "shares = \"ceil_div(rows, width)\"\n",
      places);
  testing::Folder spelt = with_terms("", places);
  named.implementation += pass_end;
  spelt.implementation += pass_end;
  const auto fill = [](std::string& text, const std::string& width, const std::string& plain, const std::string& rows) {
    for (const auto& [from, to] : {std::pair("WIDTH", width), std::pair("PLAIN", plain), std::pair("ROWS", rows)})
      for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, std::string(from).size(), to);
  };
  fill(named.implementation, "width", "plain", "shares");
  fill(spelt.implementation, "(vector + sizeof(dtype))", "(mode == \"plain\")",
       "ceil_div(rows, vector + sizeof(dtype))");

  const Op with = named.parse(), without = spelt.parse();
  for (const char* mode : {"plain", "saturate"})
    for (const char* dtype : {"bf16", "f32"})
      for (const char* rows : {"1", "100", "4096"})
        for (const Config& config : {Config{128, 2}, Config{2048, 8}}) {
          const std::vector<Setting> settings = {{"rows", rows}, {"cols", "64"}, {"dtype", dtype}, {"mode", mode}};
          const Problem problem = make_problem(with, settings);
          CHECK(meaning(with, problem, config) == meaning(without, problem, config));
        }
}

TEST_CASE("a parameter that a pass takes by a term shapes its kernel") {
  const auto launch_only = [](const char* grid) {
    const Op op = with_terms("early = \"vector > 2\"\n", {{"\"vector * sizeof(dtype) <= 16\", ", ""},
                                                          {"x = \"vector * sizeof(dtype)\"", "x = 16"},
                                                          {"{vector * 2}", "2"},
                                                          {"\"ceil_div(rows, 4)\", \"2\"", grid},
                                                          {"cluster = [2]", "programmatic = \"early\""}})
                      .parse();
    return op.implementations[0].parameters[1].launch_only;
  };
  CHECK(launch_only("\"rows\""));
  CHECK_FALSE(launch_only("\"rows * (1 + early)\""));
}

TEST_CASE("a mistake in a term, or by one, is named with it") {
  struct Case {
    const char* terms;
    const char* message;
  };
  const Case cases[] = {
      {"a = \"threads * vectr\"\n",
       "fast.toml:8: in the term 'a': found the unknown name 'vectr' (did you mean 'vector'?) at column 11"},
      {"a = \"threads * a\"\n", "fast.toml:8: found the term 'a' in its own expression, expected only terms above it"},
      {"a = \"b * 2\"\nb = \"threads\"\n",
       "fast.toml:8: found the term 'b', which stands below, in the term 'a', expected only terms above it: move 'b' up, "
       "unless it is over 'a' in turn"},
      {"threads = 1\n", "fast.toml:8: found the name 'threads' a second time, expected a name of its own"},
      {"rows = 1\n", "fast.toml:8: found the name 'rows' a second time"},
      {"dtype = 1\n", "fast.toml:8: found the name 'dtype' a second time"},
      {"sm = 1\n", "fast.toml:8: found the name 'sm' a second time"},
      {"y = 1\n", "fast.toml:8: found the name 'y' a second time"},
      {"min = 1\n", "fast.toml:8: found the name 'min', which is a function, expected another name"},
      {"partial = 1\n", "fast.toml:17: found the name 'partial' a second time"},
      {"\"2a\" = 1\n", "fast.toml:8: found the name '2a', expected a letter"},
      {"a = 1.5\n", "expected an expression: a text or an integer"},
      {"a = 'mode'\n", "fast.toml:8: found 'mode', a type or a choice, as the term 'a', expected a number"},
      {"a = ' (( dtype )) '\n", "fast.toml:8: found 'dtype', a type or a choice, as the term 'a', expected a number"},
      {"a = 'mode + 0'\nb = 'a == \"plain\"'\n", "in the term 'b': found the word 'plain'"},
  };
  for (const Case& each : cases) {
    const std::string message = testing::refusal_of(with_terms(each.terms));
    CAPTURE(message);
    CAPTURE(each.message);
    CHECK(message.find(each.message) != std::string::npos);
  }
  const std::pair<std::pair<const char*, const char*>, const char*> uses[] = {
      {{"\"threads * 4\"", "\"part * 4\""},
       "found the axis 'rows', which varies within a bucket, in 'shared' 'part * 4' by the term 'part'"},
      {{"{vector * 2}", "{part}"},
       "found the axis 'rows', which varies within a bucket, in the placeholder 'part' by the term 'part'"},
      {{"swizzle = 128", "when = \"part\""}, "in 'when' 'part' by the term 'part', expected no such name there"},
      {{"\"rows * 4\"", "\"pat * 4\""}, "found the unknown name 'pat' (did you mean 'part'?)"},
      {{"\"rows\", \"factor\"", "\"rows\", \"part\""},
       "found 'part' as an argument by name, expected { value = \"part\", type = \"i32\" }"},
      {{"sm >= 80", "part > 1"}, "in 'requires': found the unknown name 'part'"}};
  for (const auto& [change, wanted] : uses) {
    const std::string message = testing::refusal_of(with_terms("part = \"ceil_div(rows, 2)\"\n", {change}));
    CAPTURE(message);
    CHECK(message.find(wanted) != std::string::npos);
  }
}

TEST_CASE("terms of terms are refused before they take long to compute") {
  std::string doubled = "t0 = \"threads + vector\"\n";
  for (int i = 1; i < 64; ++i)
    doubled += "t" + std::to_string(i) + " = \"t" + std::to_string(i - 1) + " * t" + std::to_string(i - 1) + "\"\n";
  const std::string message = testing::refusal_of(with_terms(doubled));
  CAPTURE(message);
  CHECK(message.find("in the term 't11': found more than 4096 operations and names, those of terms included") !=
        std::string::npos);
}

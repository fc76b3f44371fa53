// Every op that comes with the library: it loads, and what it declares is legal on the device that it is tuned for.
#include <doctest/doctest.h>

#include <algorithm>

#include "spec/key.hpp"
#include "spec/problem.hpp"
#include "spec_fixture.hpp"

using namespace kiln;
using namespace kiln::spec;

namespace {

// Sizes of language models: a few rows and many, of common widths, in every layout and type.
std::vector<Problem> usual_problems(const Op& op) {
  std::vector<Problem> problems = {Problem{}};
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    std::vector<Problem> wider;
    for (const std::int64_t size : {1, 16, 4096}) {
      for (Problem each : problems) {
        const std::int64_t multiple = op.axes[i].multiple_of;
        each.axes[i] = std::clamp((size + multiple - 1) / multiple * multiple, op.axes[i].minimum, op.axes[i].maximum);
        wider.push_back(each);
      }
    }
    problems = wider;
  }
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    std::vector<Problem> wider;
    for (std::size_t word = 0; word < op.selections[i].values.size(); ++word) {
      for (Problem each : problems) {
        each.selections[i] = static_cast<std::uint8_t>(word);
        wider.push_back(each);
      }
    }
    problems = wider;
  }
  return problems;
}

}  // namespace

TEST_CASE("every built-in op loads and has an implementation for each usual problem on an H200") {
  const std::vector<Op> ops = load_ops({});
  REQUIRE(!ops.empty());
  for (const Op& op : ops) {
    for (const Problem& problem : usual_problems(op)) {
      const Problem bucket = bucket_of(op, problem);
      const bool served = std::ranges::any_of(op.implementations, [&](const Implementation& each) {
        return !why_not_eligible(op, each, bucket, testing::h200());
      });
      CHECK_MESSAGE(served, op.name << " " << to_string(op, problem));
    }
  }
}

TEST_CASE("every config of a built-in implementation names its kernels and has a geometry that an H200 can launch") {
  const DeviceFacts device = testing::h200();
  for (const Op& op : load_ops({})) {
    for (const Implementation& implementation : op.implementations) {
      std::size_t legal = 0;
      for (const Problem& problem : usual_problems(op)) {
        if (why_not_eligible(op, implementation, problem, device)) continue;
        for (const Config& config : search_space(op, implementation, problem, device)) {
          ++legal;
          const auto frame = make_frame(op, &implementation, problem, device, config);
          const auto names = name_expressions(op, implementation.passes, implementation.symbols, frame);
          for (std::size_t i = 0; i < names.size(); ++i) {
            const Pass& pass = implementation.passes[i];
            CAPTURE(op.name + "/" + implementation.name + " " + to_string(implementation, config) + " at " + to_string(op, problem));
            if (names[i].empty()) continue;
            const std::int64_t threads = pass.block[0].evaluate(frame).number * pass.block[1].evaluate(frame).number * pass.block[2].evaluate(frame).number;
            REQUIRE(threads >= 1);
            REQUIRE(threads <= 1024);
            REQUIRE(pass.shared.evaluate(frame).ok());
            REQUIRE(pass.shared.evaluate(frame).number <= device.shared_per_block());
            REQUIRE(pass.grid[0].evaluate(frame).truth());
            REQUIRE(names[i].find('{') == std::string::npos);
          }
        }
      }
      CHECK_MESSAGE(legal > 0, op.name << "/" << implementation.name << " has no legal config for any usual problem");
    }
  }
}

TEST_CASE("the default of at least one implementation of each built-in op is legal for a model's sizes") {
  for (const Op& op : load_ops({})) {
    Problem problem;
    for (std::size_t i = 0; i < op.axes.size(); ++i) problem.axes[i] = 4096;
    const bool legal = std::ranges::any_of(op.implementations, [&](const Implementation& each) {
      return !broken_constraint(op, each, problem, testing::h200(), each.default_config);
    });
    CHECK_MESSAGE(legal, op.name);
  }
}

TEST_CASE("the shared headers are found by the names that sources include them by") {
  const auto headers = common_headers();
  CHECK(std::ranges::find(headers, "common/types.cuh", &SourceFile::name) != headers.end());
}

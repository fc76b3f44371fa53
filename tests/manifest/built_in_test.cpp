// Every op that comes with the library: it loads, and what it declares is legal on the device that it is tuned for.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "manifest/kernel_name.hpp"
#include "manifest/key.hpp"
#include "manifest/limits.hpp"
#include "manifest/variant.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

const DeviceFacts a100 = *DeviceFacts::from_device_class("sm_80/mp108/l2_41943040/smem_166912/bus_5120");

Problem sized(const Op& op, std::int64_t first, std::int64_t others) {
  Problem problem;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const Axis& axis = op.axes[i];
    const std::int64_t size = i == 0 ? first : axis.team ? std::min<std::int64_t>(others, most_kernel_ranks) : others;
    problem.axes[i] =
        std::clamp((size + axis.multiple_of - 1) / axis.multiple_of * axis.multiple_of, axis.minimum, axis.maximum);
  }
  return problem;
}

// With half of the maximum on each axis that is at it: heads of 128 columns.
Problem halved(const Op& op, Problem problem) {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (problem.axes[i] == op.axes[i].maximum && problem.axes[i] / 2 % op.axes[i].multiple_of == 0)
      problem.axes[i] = std::max(problem.axes[i] / 2, op.axes[i].minimum);
  return problem;
}

// One row and many, narrow and as wide as a language model's; then each other type and choice by itself.
std::vector<Problem> usual_problems(const Op& op) {
  std::vector<Problem> problems = {sized(op, 1, 1), sized(op, 16, 96), sized(op, 1, 4096), sized(op, 4096, 8192),
                                   halved(op, sized(op, 1, 4096))};
  const std::size_t plain = problems.size();
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    for (std::size_t word = 1; word < op.selections[i].values.size(); ++word) {
      for (std::size_t each = 0; each < plain; ++each) {
        Problem problem = problems[each];
        problem.selections[i] = static_cast<std::uint8_t>(word);
        if (is_allowed(op, problem)) problems.push_back(problem);
      }
    }
  }
  return problems;
}

void check_geometry(const Pass& pass, std::span<const std::int64_t> frame) {
  std::int64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    threads *= pass.block[i].evaluate(frame).number;
    REQUIRE(pass.grid[i].evaluate(frame).truth());
  }
  REQUIRE(threads >= 1);
  REQUIRE(threads <= 1024);
  REQUIRE(pass.shared.evaluate(frame).ok());
  REQUIRE(pass.shared.evaluate(frame).number <= testing::h200().shared_per_block());
}

// Every 29th config and the last: a search space may hold tens of thousands.
std::size_t check_configs(const Op& op, const Implementation& implementation, const Problem& problem) {
  const auto configs = search_space({op, testing::h200()}, implementation, problem);
  for (std::size_t at = 0; at < configs.size(); at += std::clamp<std::size_t>(configs.size() - 1 - at, 1, 29)) {
    const Config& config = configs[at];
    CAPTURE(op.name + "/" + implementation.name + " " + to_string(implementation, config) + " at " +
            to_string(op, problem));
    const auto frame = Variant{&implementation, config}.frame({op, testing::h200()}, problem);
    const auto names = name_expressions(op, implementation.passes, implementation.symbols, frame);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!names[i].empty()) check_geometry(implementation.passes[i], frame);
    }
  }
  return configs.size();
}

}  // namespace

TEST_CASE("every built-in op loads and has an implementation for each usual problem on an H200") {
  const std::vector<Op> ops = load_ops({});
  REQUIRE(!ops.empty());
  for (const Op& op : ops) {
    for (const Problem& problem : usual_problems(op)) {
      const Problem bucket = bucket_of(op, problem);
      const bool served = std::ranges::any_of(op.implementations, [&](const Implementation& each) {
        return !each.is_library() && !why_not_eligible({op, testing::h200()}, each, bucket);
      });
      CHECK_MESSAGE(served, op.name << " " << to_string(op, problem));
    }
  }
}

TEST_CASE(
    "configs throughout the space of each built-in implementation name their kernels and have a geometry that an H200 can launch") {
  for (const Op& op : load_ops({})) {
    for (const Implementation& implementation : op.implementations) {
      if (implementation.is_library()) continue;
      std::size_t legal = 0;
      for (const Problem& problem : usual_problems(op)) {
        if (why_not_eligible({op, testing::h200()}, implementation, problem)) continue;
        legal += check_configs(op, implementation, problem);
      }
      CHECK_MESSAGE(legal > 0, op.name << "/" << implementation.name << " has no legal config for any usual problem");
    }
  }
}

TEST_CASE("what launches early on a Hopper is legal on an A100 as the same kernel without that") {
  int legal = 0;
  for (const Op& op : load_ops({}))
    for (const Implementation& each : op.implementations) {
      const auto pdl = std::ranges::find(each.parameters, "pdl", &Parameter::name);
      if (pdl == each.parameters.end()) continue;
      CAPTURE(op.name + "/" + each.name);
      CHECK(pdl->launch_only);
      Config early = each.default_config;
      early[static_cast<std::size_t>(pdl - each.parameters.begin())] = 1;
      for (const Problem& problem : usual_problems(op)) {
        if (why_not_eligible({op, a100}, each, problem) || default_of(each).broken_constraint({op, a100}, problem))
          continue;
        CHECK(Variant{&each, early}.broken_constraint({op, a100}, problem) == "pdl == 0 || sm >= 90");
        CHECK_FALSE(Variant{&each, kernel_config(each, early)}.broken_constraint({op, a100}, problem));
        ++legal;
      }
    }
  CHECK(legal > 500);
}

TEST_CASE("a default of each built-in op is legal for each usual problem, on an A100 too") {
  for (const Op& op : load_ops({}))
    for (const Problem& problem : usual_problems(op))
      for (const DeviceFacts& device : {testing::h200(), a100}) {
        const bool legal = std::ranges::any_of(op.implementations, [&](const Implementation& each) {
          return !each.is_library() && !why_not_eligible({op, device}, each, problem) &&
                 !default_of(each).broken_constraint({op, device}, problem);
        });
        CHECK_MESSAGE(legal, op.name << " " << to_string(op, problem) << " on " << device.device_class());
      }
}

/// An op and sizes that published models give it, or a large batch on one GPU.
struct Published {
  const char* op;
  std::vector<Setting> sizes;
};

TEST_CASE("defaults take the vocabularies of published models, and the rows of many tokens by heads and by experts") {
  std::vector<Published> published = {
      {"rms_norm", {{"rows", "8388608"}, {"cols", "128"}}},    // 131,072 tokens of Qwen3 32B: 64 heads
      {"rms_norm", {{"rows", "67108864"}, {"cols", "128"}}},   // 1,048,576 tokens
      {"layer_norm", {{"rows", "6422528"}, {"cols", "128"}}},  // 2,048 images of Swin B: 56 x 56 patches
      {"softmax", {{"rows", "25690112"}, {"cols", "49"}}},     // their 64 windows by 4 heads by 49 queries
      {"softmax_backward", {{"rows", "25690112"}, {"cols", "49"}}},
  };
  // Qwen3, Phi 4 mini, Llama 4, and Gemma 3 of one billion parameters and of more
  for (const char* vocabulary : {"151936", "200064", "202048", "262144", "262208"})
    for (const char* op : {"softmax", "softmax_backward"}) {
      published.push_back({op, {{"rows", "64"}, {"cols", vocabulary}}});
      published.push_back({op, {{"rows", "65536"}, {"cols", vocabulary}, {"dtype", "f32"}}});
    }
  // 1,048,576 tokens of 8 experts each, as Qwen3 235B has them
  for (const char* op : {"swiglu", "swiglu_backward", "quantise"})
    published.push_back({op, {{"rows", "8388608"}, {"cols", "1536"}}});
  published.push_back({"gemm_grouped", {{"m", "8388608"}, {"n", "3072"}, {"k", "4096"}, {"groups", "128"}}});

  const std::vector<Op> ops = load_ops({});
  for (const auto& [name, sizes] : published) {
    const Op& op = *std::ranges::find(ops, name, &Op::name);
    const Problem problem = make_problem(op, sizes);
    const Problem bucket = bucket_of(op, problem);
    for (const DeviceFacts& device : {testing::h200(), a100}) {
      CAPTURE(op.name + " " + to_string(op, problem) + " on " + device.device_class());
      int launched = 0;
      for (const Implementation& each : op.implementations) {
        const Variant variant = default_of(each);
        if (each.is_library() || why_not_eligible({op, device}, each, bucket) ||
            variant.broken_constraint({op, device}, bucket))
          continue;
        const auto frame = variant.frame({op, device}, bucket);
        for (const Pass& pass : each.passes) {
          check_geometry(pass, frame);
          CHECK(pass.grid[0].evaluate(frame).number <= std::numeric_limits<int>::max());
          CHECK(pass.grid[1].evaluate(frame).number <= 65535);
        }
        ++launched;
      }
      CHECK(launched > 0);
    }
  }
}

TEST_CASE("the shared headers are found by the names that sources include them by") {
  const auto headers = common_headers();
  CHECK(std::ranges::find(headers, "common/types.cuh", &SourceFile::name) != headers.end());
}

TEST_CASE("a scale of x's own costs no second reading of what L2 keeps of x") {
  const std::vector<Op> ops = load_ops({});
  const Op& op = *std::ranges::find(ops, "quantise", &Op::name);
  const auto bytes = [&](const char* rows, const char* scaling) {
    const std::vector<Setting> settings = {{"rows", rows}, {"cols", "4096"}, {"dtype", "bf16"}, {"scaling", scaling}};
    return op.cost_bytes.evaluate(frame_of({op, testing::h200()}, make_problem(op, settings))).number;
  };
  CHECK(bytes("16", "dynamic") == bytes("16", "tensor"));
  CHECK(bytes("16", "tensor") == std::int64_t{3} * 16 * 4096);
  const std::int64_t x = std::int64_t{2} * 65536 * 4096;
  CHECK(bytes("65536", "dynamic") == bytes("65536", "tensor") + x - testing::h200().l2_bytes());
}

TEST_CASE("the display text of every allowed choice of types and words is read back as the same problem") {
  for (const Op& op : load_ops({})) {
    Problem problem = sized(op, 16, 4096);
    for (bool done = false; !done;) {
      if (is_allowed(op, problem))
        REQUIRE_MESSAGE(parse_bucket(op, display_text(op, problem)) == problem,
                        op.name << " " << to_string(op, problem) << ": " << display_text(op, problem));
      done = true;
      for (std::size_t i = 0; done && i < op.selections.size(); ++i) {  // the next, as an odometer counts
        done = ++problem.selections[i] == op.selections[i].values.size();
        if (done) problem.selections[i] = 0;
      }
    }
  }
}

TEST_CASE("the display text leaves defaults out, and nothing else") {
  const std::vector<Op> ops = load_ops({});
  const auto shown = [&](const char* name, const std::vector<Setting>& settings) {
    const Op& op = *std::ranges::find(ops, name, &Op::name);
    return display_text(op, make_problem(op, settings));
  };
  const std::vector<Setting> sizes = {{"m", "512"}, {"n", "4096"}, {"k", "4096"}};
  const auto gemm = [&](std::vector<Setting> more) {
    more.insert(more.begin(), sizes.begin(), sizes.end());
    return shown("gemm", more);
  };
  CHECK(gemm({}) == "m=512 n=4096 k=4096 dtype=bf16");
  CHECK(gemm({{"dtype", "e4m3"}}) == "m=512 n=4096 k=4096 dtype=e4m3");  // whose outputs are bf16 by default
  CHECK(gemm({{"dtype", "e4m3"}, {"out", "e4m3"}}) == "m=512 n=4096 k=4096 dtype=e4m3 out=e4m3");
  CHECK(gemm({{"layout", "nn"}, {"residual", "add"}}) == "m=512 n=4096 k=4096 dtype=bf16 layout=nn residual=add");
  const Op& op = *std::ranges::find(ops, "gemm", &Op::name);
  const auto why = why_not_eligible({op, a100}, *op.find("wgmma"), make_problem(op, sizes));
  CHECK(why.value_or("").ends_with("with m=512 n=4096 k=4096 dtype=bf16"));  // as messages have it
  CHECK(shown("softmax", {{"rows", "8"}, {"cols", "4096"}, {"mask", "none"}}) == "rows=8 cols=4096 dtype=bf16");
}

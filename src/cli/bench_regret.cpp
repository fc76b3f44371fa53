// kiln bench regret: measures what sharing a record over a bucket costs at real lengths.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/bench/lengths.hpp"
#include "cli/bench/regret_measure.hpp"
#include "cli/build.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "tune/tune_bucket.hpp"

namespace kiln::cli {
namespace {

using bench::Regret;

struct BenchRegretSettings {
  std::string op;
  std::vector<std::string> words, policies;
  std::string axis;
  std::size_t lengths = 24;
  std::uint64_t seed = 1;
};

void declare(CLI::App& command, BenchRegretSettings& settings) {
  command.add_option("op", settings.op, "The op, see kiln ops")->required()->type_name("OP");
  command
      .add_option(
          "sizes", settings.words,
          "A range for the length (m=1..16384), a size or a list for each other axis, words for types and choices")
      ->required()
      ->type_name("NAME=VALUE");
  command
      .add_option(
          "--lengths", settings.lengths,
          "Draw this many lengths, evenly over their logarithm; 24 by default. Lengths right after a bucket's edge are added")
      ->transform(whole_number_from(0, most_counted))
      ->type_name("N");
  command.add_option("--seed", settings.seed, "The seed of the draw")->transform(any_whole_number())->type_name("S");
  command.add_option("--axis", settings.axis, "The axis that is the length, when several are ranges")
      ->type_name("NAME");
  command
      .add_option(
          "--policy", settings.policies,
          "Measure this bucket policy in place of the axis's own: pow2, pow2_steps:256,2048/256, edges:16,64,256; may be repeated, to compare them at the same lengths")
      ->allow_extra_args(false)
      ->type_name("POLICY");
}

/// Returns the distinct policies that the axis has for the types and choices of the set.
std::vector<manifest::BucketPolicy> own_policies(const manifest::Op& op, ProblemSet set, std::size_t axis) {
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const std::int64_t size = manifest::next_legal(op.axes[i], set.axes[i].front().low);
    set.axes[i].assign(1, {size, size});
  }
  std::vector<manifest::BucketPolicy> policies;
  for (const Problem& each : buckets_of(op, set)) {
    const manifest::BucketPolicy& policy = manifest::policy_of(op, axis, each);
    if (std::ranges::find(policies, policy) == policies.end()) policies.push_back(policy);
  }
  return policies;
}

/// Returns the axis that was given as a range and whose policy is not exact for some of the set's types and choices.
std::size_t length_axis(const manifest::Op& op, const ProblemSet& set, const std::string& named) {
  const auto is_bucketed = [&](std::size_t axis) {
    return std::ranges::any_of(own_policies(op, set, axis), [](const manifest::BucketPolicy& policy) {
      return policy.kind != manifest::PolicyKind::exact;
    });
  };
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const bool spans =
        std::any_of(set.axes[i].begin(), set.axes[i].end(), [](const Range& range) { return range.low < range.high; });
    if (named.empty() ? spans && is_bucketed(i) : op.axes[i].name == named) candidates.push_back(i);
  }
  if (candidates.size() == 1) return candidates.front();
  throw Error(
      ErrorKind::bad_input,
      named.empty()
          ? fmt::format(
                "{} axes of {} are both bucketed and given as a range, expected one; --axis says which is the length",
                candidates.size(), op.name)
          : fmt::format("op {} has no axis '{}'", op.name, named));
}

/// Returns every length combined with every value of the other axes, which must be sizes or lists.
std::vector<Problem> problems_of(const manifest::Op& op, ProblemSet set, std::size_t axis,
                                 std::span<const std::int64_t> lengths) {
  set.axes[axis].clear();
  for (const std::int64_t length : lengths) set.axes[axis].push_back({length, length});
  for (std::size_t i = 0; i < set.axes.size(); ++i)
    for (const Range& range : set.axes[i])
      if (range.low != range.high)
        throw Error(ErrorKind::bad_input,
                    fmt::format("axis '{}' is a range, expected a size or a list: the length is '{}'", op.axes[i].name,
                                op.axes[axis].name));
  manifest::Op exact = op;
  for (manifest::Axis& each : exact.axes) each.policies.assign(1, {});
  return buckets_of(exact, set);
}

Json json_of(const manifest::Op& op, const Regret& regret) {
  return {{"event", "length"},
          {"build", build()},
          {"policy", regret.policy},
          {"problem", manifest::to_string(op, regret.problem)},
          {"length", regret.length},
          {"edge", regret.edge},
          {"shared", regret.shared},
          {"own", regret.own},
          {"shared_ns", regret.shared_ns},
          {"own_ns", regret.own_ns},
          {"regret", regret.regret},
          {"fell_back", regret.fell_back}};
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

void print_lengths(const manifest::Op& op, const std::vector<Regret>& regrets) {
  Table table({"policy", "problem", "> bucket's edge", "> as launched", "> with its own", "> regret", ""});
  for (const Regret& each : regrets)
    table.row({each.policy, manifest::display_text(op, each.problem), format_count(each.edge),
               format_time(each.shared_ns), format_time(each.own_ns), percent(each.regret),
               each.fell_back            ? "no config of the record is legal here: the default serves"
               : each.shared == each.own ? "the same config"
                                         : ""});
  print(table.text() + "\n");
}

/// Prints a summary for each policy: of each size class, and of all lengths.
void print_summaries(bool json, const std::string& axis, const std::vector<Regret>& regrets) {
  std::map<std::string, std::vector<Regret>> by_policy;
  for (const Regret& each : regrets) by_policy[each.policy].push_back(each);
  Table table({"policy", axis, "> lengths", "> median", "> 95th percentile", "> worst", "> at"});
  const auto add = [&](const std::string& policy, std::int64_t low, std::span<const Regret> some) {
    const bench::RegretSummary summary = bench::summarise(some);
    if (json)
      print_json({{"event", "summary"},
                  {"policy", policy},
                  {"from", low == 0 ? Json() : Json(low)},
                  {"lengths", summary.lengths},
                  {"median", summary.median},
                  {"p95", summary.p95},
                  {"worst", summary.worst},
                  {"worst_length", summary.worst_length},
                  {"build", build()}});
    table.row({policy, low == 0 ? "all" : fmt::format("{}..{}", low, 4 * low - 1), format_count(summary.lengths),
               percent(summary.median), percent(summary.p95), percent(summary.worst),
               format_count(summary.worst_length)});
  };
  for (const auto& [policy, all] : by_policy) {
    std::map<std::int64_t, std::vector<Regret>> classes;
    for (const Regret& each : all) classes[bench::class_of(each.length)].push_back(each);
    for (const auto& [low, some] : classes) add(policy, low, some);
    add(policy, 0, all);
  }
  if (!json) print(table.text());
}

struct Survey {
  std::size_t axis = 0;
  std::vector<manifest::BucketPolicy> policies;
  std::vector<Problem> problems;
};

/// Checks the arguments before the device is used.
Survey survey_of(const manifest::Op& op, const BenchRegretSettings& settings) {
  if (op.is_of_team())
    throw Error(ErrorKind::bad_input, fmt::format("{} is an op of a team, which kiln bench does not launch", op.name));
  Survey survey;
  const ProblemSet set = parse_problem_set(op, settings.words);
  survey.axis = length_axis(op, set, settings.axis);
  const manifest::Axis& axis = op.axes[survey.axis];
  for (const std::string& text : settings.policies) survey.policies.push_back(bench::parse_policy(text, axis));
  if (survey.policies.empty()) survey.policies = own_policies(op, set, survey.axis);
  survey.problems =
      problems_of(op, set, survey.axis,
                  bench::lengths_of(axis, set.axes[survey.axis], settings.lengths, settings.seed, survey.policies));
  return survey;
}

int run(const Globals& globals, const BenchRegretSettings& settings) {
  const manifest::Catalogue ops = load_ops(globals, settings.op);
  const manifest::Op& op = find_op(ops, settings.op);
  const Survey survey = survey_of(op, settings);
  Tools tools(globals);
  Options options = engine_options(globals);
  options.stop_requested = Interrupt::requested;
  const Engine engine(options);  // which tunes what it has no record of, and keeps it
  const Interrupt interrupt;
  const cuda::Context::Scope scope(tools.context);
  bench::RegretMeasurement measurement(tools, engine, op, survey.axis, survey.policies);
  StatusLine line(!globals.json && !globals.quiet && is_terminal());
  std::vector<Regret> regrets;
  std::size_t failed = 0, begun = 0, done = 0;
  for (const Problem& problem : survey.problems) {
    line.show(
        fmt::format("{}/{} {} {}", ++begun, survey.problems.size(), op.name, manifest::display_text(op, problem)));
    try {
      if (Interrupt::requested()) throw Error(ErrorKind::interrupted, "interrupted");
      for (Regret& each : measurement.at(problem)) {
        if (globals.json) print_json(json_of(op, each));
        regrets.push_back(std::move(each));
      }
      ++done;
    } catch (const Error& error) {
      line.clear();
      if (error.kind() == ErrorKind::interrupted) break;
      if (!tune::is_of_one_bucket(error.kind()) && error.kind() != ErrorKind::wrong_result) throw;
      ++failed, ++done;
      const std::string left_out = manifest::display_text(op, problem);
      if (globals.json)
        print_json({{"event", "left_out"}, {"op", op.name}, {"problem", left_out}, {"reason", error.what()}});
      else
        note(fmt::format("{} is left out: {}", left_out, error.what()));
    }
  }
  line.clear();
  if (!globals.json) print_lengths(op, regrets);
  print_summaries(globals.json, op.axes[survey.axis].name, regrets);
  if (const std::size_t all = survey.problems.size(); done < all)
    throw Error(ErrorKind::interrupted, fmt::format("interrupted after {} of {}; the others were not measured", done,
                                                    counted(static_cast<std::int64_t>(all), "problem")));
  return failed > 0 ? exit_wrong : exit_good;
}

}  // namespace

void add_bench_regret(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<BenchRegretSettings>(
      app, chosen, "regret", "Measure what sharing a record over a bucket costs at real lengths", declare, run,
      takes_all);
  command->footer(
      "At each length, the config that a launch takes from its bucket's record (in the files, or tuned and kept) is timed,\n"
      "alternating with a config tuned for that length alone (not kept). Both are verified on fresh data. Regret is how\n"
      "much longer the former takes.\n"
      "Examples:\n  kiln bench regret gemm m=1..16384 n=4096 k=4096 dtype=bf16\n"
      "  kiln bench regret rms_norm rows=256..8192 cols=4096 --policy pow2 --policy pow2_steps:1024,8192/1024\n"
      "Exit status 1: some lengths could not be measured.");
}

}  // namespace kiln::cli

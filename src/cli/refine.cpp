#include "cli/refine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/refinery.hpp"
#include "cli/exit_code.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/tuning.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

using bench::RefinedBucket;
using bench::Refining;

std::string_view to_string(Refining refining) {
  switch (refining) {
    case Refining::split: return "split";
    case Refining::found: return "found";
    case Refining::whole: return "whole";
    case Refining::failed: return "failed";
  }
  return "unknown";
}

const std::string& axis_of(const spec::Op& op) { return op.axes[*spec::refined_axis(op)].name; }

Json json_of(const RefinedBucket& refined) {
  const spec::Op& op = *refined.of.op;
  Json json{{"event", "refined"},
            {"op", op.name},
            {"bucket", spec::to_string(op, refined.of.bucket)},
            {"outcome", to_string(refined.refining)},
            {"axis", axis_of(op)},
            {"low", refined.low}};
  if (!refined.why.empty()) json["why"] = refined.why;
  if (!refined.lower.empty()) json["lower"] = refined.lower;
  if (refined.edge > 0) json["edge"] = refined.edge;
  if (refined.refining == Refining::split)
    json.update({{"low_gain", refined.low_gain}, {"edge_gain", refined.edge_gain}});
  return json;
}

void print_refined(const Globals& globals, const std::vector<RefinedBucket>& all) {
  if (globals.json) {
    for (const RefinedBucket& each : all) print_json(json_of(each));
    return;
  }
  const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
  Table table({"bucket", "> split at", "lower config", "> gain at its lowest", "> gain at the edge", ""});
  for (const RefinedBucket& each : all) {
    const bool is_split = each.refining == Refining::split;
    table.row({spec::to_string(*each.of.op, each.of.bucket), each.edge > 0 ? format_count(each.edge) : "-", each.lower,
               is_split || each.low_gain != 0 ? percent(each.low_gain) : "-", is_split ? percent(each.edge_gain) : "-",
               each.refining == Refining::found    ? "split before"
               : each.refining == Refining::failed ? "failed: " + each.why
                                                   : each.why});
  }
  print(table.text());
}

/// Refines one bucket after the other until it is interrupted.
void refine_on(const Globals& globals, engine::State& state, std::span<const OpBucket> buckets, double threshold,
               std::vector<RefinedBucket>& all) {
  const cuda::Context::Scope scope(state.context);
  StatusLine line(!globals.json && !globals.quiet && is_terminal());
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const OpBucket& bucket = buckets[i];
    const auto say = [&](const std::string& what) {
      line.show(fmt::format("refining {}/{} {} {}: {}", i + 1, buckets.size(), bucket.op->name,
                            spec::to_string(*bucket.op, bucket.bucket), what));
    };
    try {
      all.push_back(bench::Refinery(state, bucket).run(threshold, say));
    } catch (const Error& error) {
      line.clear();
      if (error.kind() == ErrorKind::interrupted) return state.pool.cancel();
      if (!is_of_one_bucket(error.kind()) && error.kind() != ErrorKind::wrong_result) throw;
      RefinedBucket failed;
      failed.of = bucket;
      failed.refining = Refining::failed;
      failed.why = error.what();
      all.push_back(std::move(failed));
    }
  }
  line.clear();
}

}  // namespace

void check_refinable(const spec::Op& op) {
  if (!spec::refined_axis(op))
    throw Error(ErrorKind::bad_input,
                fmt::format("every axis of {} is exact, expected one whose buckets hold more than one size; "
                            "there is nothing to refine",
                            op.name));
}

int refine_buckets(const Globals& globals, const TuningDevices& devices, std::span<const OpBucket> buckets,
                   double threshold) {
  const Interrupt interrupt;
  std::vector<RefinedBucket> all;
  for (std::size_t i = 0; i < devices.classes() && !Interrupt::requested(); ++i)
    refine_on(globals, devices.first_of_class(i), buckets, threshold, all);
  print_refined(globals, all);
  if (Interrupt::requested()) {
    if (!globals.quiet)
      note(fmt::format("interrupted after {} of {} buckets were refined; they are kept, and the same command continues",
                       all.size(), buckets.size() * devices.classes()));
    return exit_interrupted;
  }
  const bool failed =
      std::any_of(all.begin(), all.end(), [](const RefinedBucket& each) { return each.refining == Refining::failed; });
  return failed ? exit_wrong : exit_good;
}

}  // namespace kiln::cli

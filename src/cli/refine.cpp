#include "cli/refine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/exit_code.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/tuning.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

using bench::Part;
using bench::RefineChoice;
using bench::RefinedBucket;
using bench::Refining;

std::string_view to_string(Refining refining) {
  switch (refining) {
    case Refining::split: return "split";
    case Refining::partly: return "partly";
    case Refining::found: return "found";
    case Refining::whole: return "whole";
    case Refining::failed: return "failed";
  }
  return "unknown";
}

const std::string& axis_of(const spec::Op& op) { return op.axes[*spec::refined_axis(op)].name; }

Json json_of(const RefinedBucket& refined, const Part& part) {
  const spec::Op& op = *refined.of.op;
  Json json{{"event", "refined"},
            {"op", op.name},
            {"bucket", spec::to_string(op, refined.of.bucket)},
            {"outcome", to_string(refined.refining)},
            {"axis", axis_of(op)}};
  if (part.edge > 0) json.update({{"low", part.low}, {"edge", part.edge}, {"lower", part.config}});
  if (part.gain) json["edge_gain"] = *part.gain;
  if (!refined.why.empty()) json["why"] = refined.why;
  return json;
}

/// At least one of each bucket, for a line.
std::vector<Part> parts_of(const RefinedBucket& refined) {
  return refined.parts.empty() ? std::vector<Part>(1) : refined.parts;
}

std::string remark(const RefinedBucket& refined) {
  return refined.refining == Refining::found ? "split before" : refined.why;
}

void print_refined(const Globals& globals, const std::vector<RefinedBucket>& all) {
  if (globals.json) {
    for (const RefinedBucket& each : all)
      for (const Part& part : parts_of(each)) print_json(json_of(each, part));
    return;
  }
  Table table({"bucket", "> from", "> to", "config of this part", "> gain at its end", ""});
  for (const RefinedBucket& each : all)
    for (const Part& part : parts_of(each)) {
      const auto size = [&](std::int64_t value) { return part.edge > 0 ? format_count(value) : "-"; };
      table.row({spec::to_string(*each.of.op, each.of.bucket), size(part.low), size(part.edge), part.config,
                 part.gain ? fmt::format("{:.1f} %", 100 * *part.gain) : "-", remark(each)});
    }
  print(table.text());
}

/// Refines one bucket after the other until it is interrupted.
void refine_on(const Globals& globals, engine::State& state, std::span<const OpBucket> buckets,
               const RefineChoice& choice, std::vector<RefinedBucket>& all) {
  const cuda::Context::Scope scope(state.context);
  StatusLine line(!globals.json && !globals.quiet && is_terminal());
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const OpBucket& bucket = buckets[i];
    const auto say = [&](const std::string& what) {
      line.show(fmt::format("refining {}/{} {} {}: {}", i + 1, buckets.size(), bucket.op->name,
                            spec::to_string(*bucket.op, bucket.bucket), what));
    };
    try {
      all.push_back(bench::Refinery(state, bucket, choice).run(say));
      if (Interrupt::requested()) break;
    } catch (const Error& error) {
      line.clear();
      if (error.kind() == ErrorKind::interrupted) break;
      if (!is_of_one_bucket(error.kind()) && error.kind() != ErrorKind::wrong_result) throw;
      RefinedBucket failed;
      failed.of = bucket;
      failed.refining = Refining::failed;
      failed.why = fmt::format("failed: {}", error.what());
      all.push_back(std::move(failed));
    }
  }
  line.clear();
  if (Interrupt::requested()) state.pool.cancel();
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
                   const RefineChoice& choice) {
  const Interrupt interrupt;
  std::vector<RefinedBucket> all;
  for (std::size_t i = 0; i < devices.classes() && !Interrupt::requested(); ++i)
    refine_on(globals, devices.first_of_class(i), buckets, choice, all);
  print_refined(globals, all);
  const auto count = [&](Refining refining) { return std::ranges::count(all, refining, &RefinedBucket::refining); };
  const std::int64_t partly = count(Refining::partly);
  if (Interrupt::requested()) {
    if (!globals.quiet)
      note(fmt::format(
          "interrupted after {} of {} buckets were refined; they are kept{}, and the same command continues",
          std::ssize(all) - partly, buckets.size() * devices.classes(),
          partly > 0 ? ", so are the parts of one that was begun" : ""));
    return exit_interrupted;
  }
  return partly + count(Refining::failed) > 0 ? exit_wrong : exit_good;
}

}  // namespace kiln::cli

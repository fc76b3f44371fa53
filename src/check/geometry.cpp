#include "check/geometry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "check/places.hpp"
#include "kiln/error.hpp"

namespace kiln::check {
namespace {

using manifest::Expression;
using manifest::Pass;
using Frame = std::span<const std::int64_t>;

constexpr std::int64_t first_cluster_sm = 90;

/// A frame, and what messages call it.
struct At {
  std::vector<std::int64_t> frame;
  std::string text;
  bool is_edge = false;  // of Trials::edges
};

/// The value where it can be computed, else 0.
std::int64_t number_of(const Expression& expression, Frame frame) { return expression.evaluate(frame).number; }

void check_place(const Place& place, const std::string& file, const At& at, Findings& findings) {
  const auto is_left_out = [&] { return place.when && !place.when->evaluate(at.frame).truth(); };
  const manifest::Value value = place.expression.evaluate(at.frame);
  const auto add = [&](std::string kind, std::string what, std::string remedy) {
    if (!is_left_out())
      findings.add({Severity::error, std::move(kind), file, place.line, std::move(what), std::move(remedy), at.text});
  };
  if (!value.ok())
    add("value_" + place.kind,
        fmt::format("{}, '{}', has no value: {}", place.what, place.expression.text(), to_string(value.status)),
        advice_for(value.status));
  else if (!place.limits.contains(value.number) &&
           !(at.is_edge && place.may_exceed && value.number > place.limits.highest))
    add(place.kind, fmt::format("{}, '{}', is {}", place.what, place.expression.text(), value.number),
        "expected " + place.remedy);
}

/// A manifest's passes with their tables, for the lines.
struct Passes {
  std::string file;
  std::span<const Pass> passes;
  const manifest::TomlValue* tables;
  const Target& target;
};

void check_cluster(const Pass& pass, const Target& target, const At& at, const auto& add) {
  std::int64_t blocks = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t cluster = number_of(pass.cluster[i], at.frame), grid = number_of(pass.grid[i], at.frame);
    if (cluster <= 1) continue;
    blocks *= std::min(cluster, most_cluster + 1);
    if (target.facts.sm() < first_cluster_sm)
      add("cluster", "cluster_device", fmt::format("a cluster of {} blocks on {}", cluster, target.arch),
          "expected none before sm_90: add requires = \"sm >= 90\", or a constraint");
    else if (grid > 0 && grid % cluster != 0)
      add("grid", fmt::format("cluster_grid_{}", i),
          fmt::format("the grid has {} blocks where a cluster has {}", grid, cluster),
          "expected a multiple: round the grid up with round_up");
  }
  if (blocks > most_cluster)
    add("cluster", "cluster", fmt::format("the cluster has {} blocks or more", blocks),
        fmt::format("expected at most {}: remove the parameter's value, or add a constraint", most_cluster));
}

void check_pass(const Passes& of, std::size_t index, const At& at, Findings& findings) {
  const Pass& pass = of.passes[index];
  if (pass.when && !pass.when->evaluate(at.frame).truth()) return;
  const auto add = [&](std::string_view key, std::string kind, std::string what, std::string remedy) {
    const auto* const table =
        of.tables != nullptr && index < of.tables->items.size() ? &of.tables->items[index] : nullptr;
    const auto* const value = table == nullptr ? nullptr : table->find(key);
    findings.add({Severity::error, std::move(kind), of.file, value == nullptr ? pass.line : value->line,
                  std::move(what), std::move(remedy), at.text});
  };
  const std::int64_t threads = threads_of(pass, at.frame);
  if (threads > most_threads)
    add("block", "block", fmt::format("the block has {} threads", threads),
        fmt::format("expected at most {}: remove the parameter's value, or add a constraint", most_threads));
  const std::int64_t shared = number_of(pass.shared, at.frame), most = of.target.facts.shared_per_block();
  if (shared > most)
    add("shared", "shared", fmt::format("'shared', '{}', is {} bytes", pass.shared.text(), shared),
        fmt::format("expected at most {}: add the constraint '{} <= shared_per_block'", most, pass.shared.text()));
  check_cluster(pass, of.target, at, add);
}

void check_alignments(const Subject& subject, const At& at, Findings& findings) {
  for (const auto& [tensor, bytes] : subject.implementation.alignment) {
    const manifest::Value value = bytes.evaluate(at.frame);
    if (!value.ok() || value.number < 1 || std::has_single_bit(static_cast<std::uint64_t>(value.number))) continue;
    const std::string& name = subject.op.tensors[static_cast<std::size_t>(tensor)].name;
    findings.add({Severity::error, "align_" + name, subject.implementation.file,
                  line_at(subject.lines.of(subject.implementation), {"align", name}),
                  fmt::format("the alignment of '{}', '{}', is {}", name, bytes.text(), value.number),
                  "expected a power of two", at.text});
  }
}

/// Whether the reader can say why there is no frame: a default without a value.
std::optional<At> frame_at(const Subject& subject, const Problem& problem, const manifest::Config& config) try {
  const manifest::Variant variant{&subject.implementation, config};
  return At{launch_frame({subject.op, subject.target.facts}, variant, problem),
            text_of(subject.op, problem, variant, subject.target)};
} catch (const Error& error) {
  if (error.kind() != ErrorKind::bad_expression) throw;
  return std::nullopt;
}

/// Each axis at its greatest size, with the others at usual ones, where a device may hold that.
std::vector<Problem> greatest_sizes(const manifest::Site& site, const Problem& selections) {
  std::vector<Problem> problems;
  for (std::size_t i = 0; i < site.op->axes.size(); ++i) {
    const manifest::Axis& axis = site.op->axes[i];
    if (axis.team) continue;
    Problem problem = at_size(*site.op, selections, 1024);
    problem.axes[i] = axis.maximum - axis.maximum % axis.multiple_of;
    if (fits_a_device(site, problem)) problems.push_back(problem);
  }
  return problems;
}

/// Names the run-time value whose default has no value, as the reader of frames says.
void add_default_without_value(const manifest::Op& op, const Lines& lines, std::string_view said, const std::string& at,
                               Findings& findings) {
  const auto is_named = [&](const manifest::Runtime& each) {
    return said.find(fmt::format("of '{}' has", each.name)) != std::string_view::npos;
  };
  const auto of = std::find_if(op.runtime.begin(), op.runtime.end(), is_named);
  findings.add({Severity::error, "default", manifest::shown_file(op, manifest::op_file),
                line_at(lines.op(), {"runtime", of == op.runtime.end() ? "" : of->name, "default"}), std::string(said),
                "rule the divisor 0 out, or give another default", at});
}

/// Evaluates sizes, defaults and costs where an axis is at its greatest size. A reference may never run there. Returns
/// false as check_op_expressions() does.
bool check_greatest(const manifest::Op& op, const Lines& lines, const Places& places, const Target& target,
                    const Problem& selections, Findings& findings) {
  const manifest::Site site(op, target.facts);
  for (const Problem& problem : greatest_sizes(site, selections)) {
    const std::string text = text_of(op, problem, {}, target);
    try {
      const At at{launch_frame(site, {}, problem), text, true};
      for (const Place& place : places.places)
        if (!place.is_of_pass) check_place(place, places.file, at, findings);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_expression) throw;
      add_default_without_value(op, lines, error.what(), text, findings);
      return false;
    }
  }
  return true;
}

}  // namespace

std::string advice_for(manifest::Status status) {
  switch (status) {
    case manifest::Status::division_by_zero: return "rule the divisor 0 out, as by a constraint or 'x > 0 ? ... : ...'";
    case manifest::Status::negative_argument: return "pass a number of 0 or more";
    default: return "keep it within 64 bits, as by a lower 'max' of an axis";
  }
}

std::int64_t threads_of(const Pass& pass, Frame frame) {
  std::int64_t threads = 1;
  for (const Expression& each : pass.block)
    if (const manifest::Value value = each.evaluate(frame);
        !value.ok() || __builtin_mul_overflow(threads, value.number, &threads))
      return 0;
  return threads;
}

void check_geometry(const Subject& subject, Findings& findings) {
  const manifest::Implementation& implementation = subject.implementation;
  const Passes passes{implementation.file, implementation.passes, subject.lines.of(implementation).find("pass"),
                      subject.target};
  const Places places = places_of(subject.op, implementation, subject.lines);
  const auto check_passes = [&](const At& at) {
    for (std::size_t i = 0; i < implementation.passes.size(); ++i) check_pass(passes, i, at, findings);
  };
  for (const auto* const list : {&subject.trials.usual, &subject.trials.edges})
    for (const Trial& trial : *list)
      for (const manifest::Config& config : trial.configs) {
        auto at = frame_at(subject, trial.problem, config);
        if (!at) continue;  // check_op_expressions names the default without a value
        at->is_edge = list == &subject.trials.edges;
        for (const Place& place : places.places) check_place(place, places.file, *at, findings);
        check_passes(*at);
        check_alignments(subject, *at, findings);
      }
  // What depends on a config alone is checked with every legal one.
  if (subject.trials.usual.empty()) return;
  const Problem& usual = subject.trials.usual.front().problem;
  for (const manifest::Config& config : subject.trials.legal)
    if (const auto at = frame_at(subject, usual, config)) check_passes(*at);
}

bool check_op_expressions(const manifest::Op& op, const Lines& lines, const Target& target, Findings& findings) {
  const Places places = places_of(op, lines), preparing = places_of_prepare(op, lines);
  const auto table = [&](std::string_view section) { return value_at(lines.op(), {section, "pass"}); };
  const Passes reference{places.file, op.reference, table("reference"), target};
  const Passes prepare{places.file, op.prepare ? std::span<const Pass>(op.prepare->passes) : std::span<const Pass>(),
                       table("prepare"), target};
  const auto check_all = [&](const Passes& of, const At& at) {
    for (std::size_t i = 0; i < of.passes.size(); ++i) check_pass(of, i, at, findings);
  };
  const std::vector<Problem> selections = allowed_selections(op);
  std::vector<Problem> problems;
  for (const Problem& each : std::span(selections).first(std::min<std::size_t>(selections.size(), 64)))
    problems.push_back(at_size(op, each, 1024));
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{4096}})
    problems.push_back(at_size(op, selections.front(), size));
  for (const Problem& problem : problems) {
    const manifest::Site site(op, target.facts);
    try {
      At at{launch_frame(site, {}, problem), text_of(op, problem, {}, target)};
      for (const Place& place : places.places) check_place(place, places.file, at, findings);
      check_all(reference, at);
      for (std::size_t each = 0; op.prepare && each < op.prepare->cases.size(); ++each) {
        at.frame.resize(static_cast<std::size_t>(op.first_parameter()));
        at.frame.push_back(0);  // the seed
        at.frame.push_back(static_cast<std::int64_t>(each));
        for (const Place& place : preparing.places) check_place(place, preparing.file, at, findings);
        check_all(prepare, at);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_expression) throw;
      add_default_without_value(op, lines, error.what(), text_of(op, problem, {}, target), findings);
      return false;
    }
  }
  return check_greatest(op, lines, places, target, selections.front(), findings);
}

}  // namespace kiln::check

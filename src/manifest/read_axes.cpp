// [axes]: sizes and the policies that bucket them.
#include <fmt/format.h>

#include <bit>
#include <limits>

#include "manifest/manifest_parts.hpp"

namespace kiln::manifest {
namespace {

/// Reads an integer above `previous`, which may be the largest of all.
std::int64_t above(const ManifestReader& reader, const TomlValue& value, std::string_view what, std::int64_t previous) {
  if (previous == std::numeric_limits<std::int64_t>::max())
    reader.fail(value.line, fmt::format("{} as {}", value.described(), what), "none after the largest integer");
  return reader.integer(value, what, previous + 1);
}

std::vector<BucketPolicy::Step> read_steps(const ManifestReader& reader, const TomlValue& value,
                                           std::int64_t pow2_until) {
  std::vector<BucketPolicy::Step> steps;
  std::int64_t previous = pow2_until;
  for (const TomlValue& each : reader.list(value, "'steps'")) {
    reader.check_keys(each, "a step", {"until", "step"});
    const std::int64_t until = above(reader, reader.required(each, "a step", "until"), "'until'", previous);
    const std::int64_t step = reader.integer(reader.required(each, "a step", "step"), "'step'", 1);
    if (until % step != 0) {
      reader.fail(each.line, fmt::format("until = {} with step = {}", until, step), "a multiple of the step");
    }
    steps.push_back({until, step});
    previous = until;
  }
  return steps;
}

std::vector<std::int64_t> read_edges(const ManifestReader& reader, const TomlValue& value) {
  std::vector<std::int64_t> edges;
  for (const TomlValue& each : reader.list(value, "'edges'")) {
    edges.push_back(above(reader, each, "an edge (they ascend)", edges.empty() ? 0 : edges.back()));
  }
  if (edges.empty()) reader.fail(value.line, "no edge", "one or more");
  return edges;
}

BucketPolicy read_policy_table(const ManifestReader& reader, const TomlValue& value) {
  BucketPolicy policy;
  const TomlValue& name = reader.required(value, "a bucket", "policy");
  if (reader.one_of(name, "the policy of a table", {"pow2_steps", "edges"}) == 1) {
    reader.check_keys(value, "a bucket of policy 'edges'", {"policy", "edges"});
    policy.kind = PolicyKind::edges;
    policy.edges = read_edges(reader, reader.required(value, "a bucket of policy 'edges'", "edges"));
    return policy;
  }
  constexpr std::string_view where = "a bucket of policy 'pow2_steps'";
  reader.check_keys(value, where, {"policy", "pow2_until", "steps"});
  policy.kind = PolicyKind::pow2_steps;
  const TomlValue& until = reader.required(value, where, "pow2_until");
  policy.pow2_until = reader.integer(until, "'pow2_until'", 1);
  if (!std::has_single_bit(static_cast<std::uint64_t>(policy.pow2_until))) {
    reader.fail(until.line, until.described() + " as 'pow2_until'", "a power of two");
  }
  policy.steps = read_steps(reader, reader.required(value, where, "steps"), policy.pow2_until);
  return policy;
}

BucketPolicy read_policy(const ManifestReader& reader, const TomlValue& value) {
  if (value.kind == TomlValue::Kind::table) return read_policy_table(reader, value);
  BucketPolicy policy;
  const std::size_t word = reader.one_of(value, "a bucket policy without a table", {"exact", "pow2"});
  policy.kind = word == 0 ? PolicyKind::exact : PolicyKind::pow2;
  return policy;
}

// Every upper edge must be a legal size, because the bucket is tuned there.
void check_edges(const ManifestReader& reader, const Axis& axis, int line) {
  const auto check = [&](std::int64_t edge, std::string_view what) {
    if (edge % axis.multiple_of == 0) return;
    reader.fail(line,
                fmt::format("{} {} of axis '{}', which has multiple_of = {}", what, edge, axis.name, axis.multiple_of),
                "upper edges that are multiples");
  };
  check(axis.maximum, "the maximum");
  const bool powers = axis.policy.kind == PolicyKind::pow2 || axis.policy.kind == PolicyKind::pow2_steps;
  if (powers && !std::has_single_bit(static_cast<std::uint64_t>(axis.multiple_of))) {
    reader.fail(
        line,
        fmt::format("multiple_of = {} on axis '{}', whose upper edges are powers of two", axis.multiple_of, axis.name),
        "a power of two");
  }
  for (const BucketPolicy::Step& step : axis.policy.steps) check(step.step, "the step");
  for (const std::int64_t edge : axis.policy.edges) {
    check(edge, "the edge");
    if (edge > axis.maximum)
      reader.fail(line, fmt::format("the edge {} past max = {}", edge, axis.maximum), "edges up to max");
  }
}

// A length on the device may be any int32 up to its bound.
void check_on_device(const ManifestReader& reader, const Axis& axis, int line) {
  if (axis.multiple_of != 1)
    reader.fail(line, fmt::format("on_device with multiple_of = {} on axis '{}'", axis.multiple_of, axis.name),
                "one of the two: a length on the device may be any number");
  if (axis.maximum > std::numeric_limits<std::int32_t>::max())
    reader.fail(line, fmt::format("on_device with max = {} on axis '{}'", axis.maximum, axis.name),
                "at most 2147483647: lengths on the device are int32");
}

Axis read_axis(const ManifestReader& reader, const std::string& name, const TomlValue& value) {
  const std::string where = fmt::format("axis '{}'", name);
  reader.check_keys(value, where, {"bucket", "min", "max", "multiple_of", "on_device"});
  Axis axis;
  axis.name = name;
  axis.policy = read_policy(reader, reader.required(value, where, "bucket"));
  if (const TomlValue* minimum = value.find("min")) axis.minimum = reader.integer(*minimum, "'min'", 1);
  axis.maximum = reader.integer(reader.required(value, where, "max"), "'max'", axis.minimum);
  if (const TomlValue* multiple = value.find("multiple_of"))
    axis.multiple_of = reader.integer(*multiple, "'multiple_of'", 1);
  axis.on_device = reader.boolean_or(value, "on_device", false);
  if (axis.on_device) check_on_device(reader, axis, value.line);
  check_edges(reader, axis, value.line);
  return axis;
}

}  // namespace

std::vector<Axis> read_axes(const ManifestReader& reader, const TomlValue& section) {
  std::vector<Axis> axes;
  check_count(reader, section.line, section.entries.size(), max_axes, "axes");
  for (const TomlEntry& entry : reader.table(section, "[axes]"))
    axes.push_back(read_axis(reader, entry.key, entry.value));
  if (axes.empty()) reader.fail(section.line, "no axis", "one or more");
  return axes;
}

}  // namespace kiln::manifest

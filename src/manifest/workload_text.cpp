#include "manifest/workload_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "manifest/problem.hpp"

namespace kiln::manifest {
namespace {

/// Buckets of one op that differ on `axis` alone.
struct Entry {
  const Op* op;
  Problem first;
  std::optional<std::size_t> axis;  // nothing: one bucket
  std::vector<std::int64_t> sizes;  // on `axis`
};

std::optional<std::size_t> only_difference(const Op& op, const Problem& a, const Problem& b) {
  if (a.selections != b.selections) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    if (a.axes[i] == b.axes[i]) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

/// Adds the bucket to an entry. Returns false where it differs from it in more than the entry's axis.
bool join(Entry& entry, const OpBucket& bucket) {
  if (entry.op != bucket.op) return false;
  if (bucket.bucket == entry.first) return true;
  const auto axis = only_difference(*entry.op, entry.first, bucket.bucket);
  if (!axis || (entry.axis && entry.axis != axis)) return false;
  if (!entry.axis) entry.sizes.push_back(entry.first.axes[*axis]);
  entry.axis = axis;
  if (std::ranges::find(entry.sizes, bucket.bucket.axes[*axis]) == entry.sizes.end())
    entry.sizes.push_back(bucket.bucket.axes[*axis]);
  return true;
}

std::string axes_of(Entry& entry) {
  std::sort(entry.sizes.begin(), entry.sizes.end());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < entry.op->axes.size(); ++i)
    parts.push_back(i == entry.axis ? fmt::format("{} = [{}]", entry.op->axes[i].name, fmt::join(entry.sizes, ", "))
                                    : fmt::format("{} = {}", entry.op->axes[i].name, entry.first.axes[i]));
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Those that display_text() shows.
std::string selections_of(const Entry& entry) {
  const std::string shown = " " + display_text(*entry.op, entry.first) + " ";
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < entry.op->selections.size(); ++i) {
    const Selection& each = entry.op->selections[i];
    const std::string& value = each.values[entry.first.selections[i]];
    if (shown.find(fmt::format(" {}={} ", each.name, value)) != std::string::npos)
      parts.push_back(fmt::format("{} = \"{}\"", each.name, value));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string workload_text(std::span<const OpBucket> buckets) {
  std::vector<Entry> entries;
  for (const OpBucket& each : buckets)
    if (std::none_of(entries.begin(), entries.end(), [&](Entry& entry) { return join(entry, each); }))
      entries.push_back({each.op, each.bucket, {}, {}});
  std::string text;
  for (Entry& each : entries) {
    if (!text.empty()) text += '\n';
    text += fmt::format("[[workload]]\nop    = \"{}\"\naxes  = {{ {} }}\n", each.op->name, axes_of(each));
    if (const std::string types = selections_of(each); !types.empty()) text += fmt::format("types = {{ {} }}\n", types);
  }
  return text;
}

}  // namespace kiln::manifest

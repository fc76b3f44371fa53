#include "manifest/problem_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "kiln/error.hpp"

namespace kiln::manifest {
namespace {

[[noreturn]] void refuse_set(const Op& op, const std::string& message) {
  throw Error(ErrorKind::bad_input, fmt::format("op '{}': {}", op.name, message));
}

/// Returns the upper edges that the ranges of one axis touch, in rising order.
std::vector<std::int64_t> edges_of(const Op& op, const Axis& axis, const BucketPolicy& policy,
                                   std::span<const SizeRange> ranges, std::size_t most) {
  std::vector<std::int64_t> edges;
  for (const SizeRange& range : ranges) {
    std::int64_t value = next_legal(axis, range.low);
    if (value > range.high)
      refuse_set(op, fmt::format("axis '{}': there is no multiple of {} from {} to {}", axis.name, axis.multiple_of,
                                 range.low, range.high));
    for (;;) {
      const std::int64_t edge = policy.high(value, axis.maximum);
      edges.push_back(edge);
      if (edges.size() > most)
        refuse_set(
            op, fmt::format("axis '{}' names more than {} buckets; give a shorter range or a list", axis.name, most));
      if (edge >= range.high) break;  // here, because edge + 1 may overflow
      value = next_legal(axis, edge + 1);
      if (value > range.high) break;
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

}  // namespace

std::int64_t next_legal(const Axis& axis, std::int64_t value) {
  const std::int64_t least = std::max(value, axis.minimum);
  const std::int64_t excess = least % axis.multiple_of;
  return excess == 0 ? least : least + (axis.multiple_of - excess);
}

std::vector<Problem> buckets_of(const Op& op, const ProblemSet& set, std::size_t most) {
  std::vector<Problem> buckets{Problem{}};
  const auto multiply = [&](const auto& values_for, auto place) {
    std::vector<Problem> product;
    for (const Problem& bucket : buckets) {
      const auto& values = values_for(bucket);
      if (product.size() + values.size() > most)
        refuse_set(op, fmt::format("more than {} buckets are named; give shorter ranges or lists", most));
      for (const auto value : values) {
        product.push_back(bucket);
        place(product.back(), value);
      }
    }
    buckets = std::move(product);
  };
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    if (set.selections[i].empty()) {
      for (Problem& bucket : buckets) bucket.selections[i] = op.selections[i].default_beside(bucket);
    } else {
      multiply(
          [&](const Problem&) -> const auto& { return set.selections[i]; },
          [i](Problem& problem, std::uint8_t value) { problem.selections[i] = value; });
    }
  }
  if (std::ranges::none_of(buckets, [&](const Problem& each) { return is_allowed(op, each); }))
    check_allowed(op, buckets.front());
  std::erase_if(buckets, [&](const Problem& each) { return !is_allowed(op, each); });
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    std::map<const BucketPolicy*, std::vector<std::int64_t>> edges;
    const auto edges_for = [&](const Problem& bucket) -> const std::vector<std::int64_t>& {
      const BucketPolicy& policy = policy_of(op, i, bucket);
      std::vector<std::int64_t>& its = edges[&policy];
      if (its.empty()) its = edges_of(op, op.axes[i], policy, set.axes[i], most);
      return its;
    };
    multiply(edges_for, [i](Problem& problem, std::int64_t edge) { problem.axes[i] = edge; });
  }
  return buckets;
}

}  // namespace kiln::manifest

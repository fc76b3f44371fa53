#include "manifest/problem_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "kiln/error.hpp"

namespace kiln::manifest {
namespace {

[[noreturn]] void refuse_set(const Op& op, const std::string& message) {
  throw Error(ErrorKind::bad_input, fmt::format("op '{}': {}", op.name, message));
}

Problem smallest_problem(const Op& op) {
  Problem problem;
  for (std::size_t i = 0; i < op.axes.size(); ++i) problem.axes[i] = next_legal(op.axes[i], op.axes[i].minimum);
  return problem;
}

/// Returns the upper edges that the ranges of one axis touch, in rising order.
std::vector<std::int64_t> edges_of(const Op& op, std::size_t index, std::span<const SizeRange> ranges,
                                   std::size_t most) {
  const Axis& axis = op.axes[index];
  Problem probe = smallest_problem(op);
  std::vector<std::int64_t> edges;
  for (const SizeRange& range : ranges) {
    std::int64_t value = next_legal(axis, range.low);
    if (value > range.high)
      refuse_set(op, fmt::format("axis '{}': there is no multiple of {} from {} to {}", axis.name, axis.multiple_of,
                                 range.low, range.high));
    for (;;) {
      probe.axes[index] = value;
      const std::int64_t edge = bucket_of(op, probe).axes[index];
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
  const auto multiply = [&](const auto& values, auto place) {
    if (buckets.size() * values.size() > most)
      refuse_set(op, fmt::format("more than {} buckets are named; give shorter ranges or lists", most));
    std::vector<Problem> product;
    for (const Problem& bucket : buckets)
      for (const auto value : values) {
        product.push_back(bucket);
        place(product.back(), value);
      }
    buckets = std::move(product);
  };
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    if (set.selections[i].empty()) {
      for (Problem& bucket : buckets) bucket.selections[i] = op.selections[i].default_beside(bucket);
    } else {
      multiply(set.selections[i], [i](Problem& problem, std::uint8_t value) { problem.selections[i] = value; });
    }
  }
  if (std::ranges::none_of(buckets, [&](const Problem& each) { return is_allowed(op, each); }))
    check_allowed(op, buckets.front());
  std::erase_if(buckets, [&](const Problem& each) { return !is_allowed(op, each); });
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    multiply(edges_of(op, i, set.axes[i], most), [i](Problem& problem, std::int64_t edge) { problem.axes[i] = edge; });
  return buckets;
}

}  // namespace kiln::manifest

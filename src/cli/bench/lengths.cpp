#include "cli/bench/lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <random>
#include <set>

#include "kiln/error.hpp"
#include "manifest/text.hpp"

namespace kiln::cli::bench {
namespace {

constexpr std::size_t most_edges = 256;  // a policy

[[noreturn]] void refuse(std::string_view text, const std::string& expected) {
  throw Error(ErrorKind::bad_input, fmt::format("the policy is {}, expected {}", manifest::quote(text), expected));
}

/// Parses "256,2048/256" or "256;2048/256)" as numbers, each with the number after its slash, or 0.
std::vector<std::pair<std::int64_t, std::int64_t>> parse_numbers(std::string_view text, std::string_view whole) {
  std::vector<std::pair<std::int64_t, std::int64_t>> numbers;
  const auto number = [&] {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || value < 1) refuse(whole, "numbers of at least 1, such as edges:16,64,256");
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  };
  while (!text.empty()) {
    numbers.emplace_back(number(), 0);
    if (text.starts_with('/')) {
      text.remove_prefix(1);
      numbers.back().second = number();
    }
    if (!text.empty() && text.front() != ',' && text.front() != ';' && text != ")")
      refuse(whole, "numbers with commas between them");
    if (!text.empty()) text.remove_prefix(1);
  }
  return numbers;
}

void check_edge(const manifest::Axis& axis, std::int64_t edge, std::int64_t after, std::string_view text) {
  if (edge <= after) refuse(text, "edges that rise");
  if (edge > axis.maximum || edge % axis.multiple_of != 0)
    refuse(text, fmt::format("edges that are multiples of {} up to {}, as axis '{}' has them", axis.multiple_of,
                             axis.maximum, axis.name));
}

}  // namespace

manifest::BucketPolicy parse_policy(std::string_view text, const manifest::Axis& axis) {
  manifest::BucketPolicy policy;
  const std::size_t end = std::min(text.find_first_of(":("), text.size());
  const std::string_view kind = text.substr(0, end);
  const auto numbers = parse_numbers(text.substr(std::min(end + 1, text.size())), text);
  if (kind == "pow2" && numbers.empty()) {
    policy.kind = manifest::PolicyKind::pow2;
  } else if (kind == "edges" && !numbers.empty()) {
    policy.kind = manifest::PolicyKind::edges;
    for (const auto& [edge, none] : numbers) {
      check_edge(axis, edge, policy.edges.empty() ? 0 : policy.edges.back(), text);
      policy.edges.push_back(edge);
    }
  } else if (kind == "pow2_steps" && !numbers.empty() && numbers.front().second == 0) {
    policy.kind = manifest::PolicyKind::pow2_steps;
    policy.pow2_until = numbers.front().first;
    if (!std::has_single_bit(static_cast<std::uint64_t>(policy.pow2_until))) refuse(text, "a power of two first");
    for (std::size_t i = 1; i < numbers.size(); ++i) {
      const auto [until, step] = numbers[i];
      if (step == 0 || until % step != 0)
        refuse(text, "UNTIL/STEP after the first number, UNTIL being a multiple of STEP");
      check_edge(axis, until, numbers[i - 1].first, text);
      if (step % axis.multiple_of != 0) refuse(text, fmt::format("steps that are multiples of {}", axis.multiple_of));
      policy.steps.push_back({until, step});
    }
  } else if (kind != "exact" || !numbers.empty()) {
    refuse(text, "pow2, exact, edges:16,64,256 or pow2_steps:256,2048/256,4096/512");
  }
  return policy;
}

std::vector<std::int64_t> lengths_of(const manifest::Axis& axis, std::span<const Range> ranges, std::size_t count,
                                     std::uint64_t seed, std::span<const manifest::BucketPolicy> policies) {
  std::set<std::int64_t> lengths;
  const auto add = [&](std::int64_t value, const Range& range) {
    value = std::max(value, axis.minimum);
    value += (axis.multiple_of - value % axis.multiple_of) % axis.multiple_of;
    if (value <= std::min(range.high, axis.maximum)) lengths.insert(value);
  };
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    const Range& range = ranges[i % ranges.size()];
    const double share = static_cast<double>(random() >> 11) * 0x1p-53;
    const double low = std::log(static_cast<double>(range.low)), high = std::log(static_cast<double>(range.high) + 1);
    add(std::min(static_cast<std::int64_t>(std::exp(low + share * (high - low))), range.high), range);
  }
  for (const manifest::BucketPolicy& policy : policies) {
    if (policy.kind == manifest::PolicyKind::exact) continue;
    for (const Range& range : ranges) {
      std::int64_t edge = policy.high(range.low, axis.maximum);
      for (std::size_t i = 0; edge < range.high && i < most_edges; ++i) {
        add(edge + 1, range);
        edge = policy.high(edge + 1, axis.maximum);
      }
    }
  }
  return {lengths.begin(), lengths.end()};
}

}  // namespace kiln::cli::bench

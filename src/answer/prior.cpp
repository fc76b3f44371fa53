#include "answer/prior.hpp"

#include <algorithm>
#include <cmath>

#include "answer/model.hpp"
#include "manifest/region.hpp"

namespace kiln::answer {
namespace {

// Factors on a measurement's weight for each doubling of distance. Parameters count for more than sizes: another tile
// is another kernel, while twice as many rows run the same one.
constexpr double weight_a_bucket_doubling = 0.3;
constexpr double weight_a_parameter_doubling = 0.05;
constexpr double farthest_config = 3;     // doublings; beyond, a measurement has no weight
constexpr double weight_of_model = 0.02;  // 1 is a measurement of the same config in the same bucket

double parameter_doublings(std::int64_t a, std::int64_t b) {
  if (a == b) return 0;
  if (a <= 0 || b <= 0) return 1;
  return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

double config_distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  double distance = 0;
  for (std::size_t i = 0; i < a.size() && distance <= farthest_config; ++i) distance += parameter_doublings(a[i], b[i]);
  return distance;
}

struct MeasuredConfig : manifest::Variant {
  double sum = 0;  // of the logarithms of measured over estimated
  int samples = 0;
  double log_ratio = 0;  // their mean
};

double median_ratio(std::vector<MeasuredConfig> all) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle, {}, &MeasuredConfig::log_ratio);
  return middle->log_ratio;
}

}  // namespace

Prior::Prior(const manifest::Bucket& bucket, std::span<const store::Record> neighbours) : bucket_(bucket) {
  for (const store::Record& record : neighbours) learn(record);
}

void Prior::learn(const store::Record& record) {
  const manifest::Op& op = *bucket_.op;
  const auto bucket = manifest::parse_bucket(op, record.bucket);
  const auto device = manifest::DeviceFacts::from_device_class(record.device_class);
  if (record.op != op.name || record.revision != op.revision || record.regime != manifest::to_string(bucket_.regime) ||
      !bucket || bucket->selections != bucket_.edge.selections || !device)
    return;

  add_winners(winners_, bucket_, record);
  std::vector<MeasuredConfig> measured;
  const auto measure = [&](std::string_view name, std::string_view text, const Problem& at, double cost_ns) {
    manifest::Variant variant{op.find(name)};
    if (!variant || !(cost_ns > 0)) return;
    auto config = manifest::parse_config(*variant.implementation, text);
    if (!config) return;
    variant.config = manifest::kernel_config(*variant.implementation, std::move(*config));
    const double estimated = estimate({op, *device, bucket_.regime}, variant, at).ns;
    if (!std::isfinite(estimated)) return;
    const auto same = std::ranges::find(measured, variant);
    MeasuredConfig& of = same != measured.end() ? *same : measured.emplace_back(MeasuredConfig{std::move(variant)});
    of.sum += std::log(cost_ns / estimated);
    ++of.samples;
  };
  for (const store::TriedCandidate& each : record.candidates)
    if (const auto at = manifest::parse_open_sizes(op, *bucket, each.sizes); at && each.verdict == store::Verdict::ok)
      measure(each.implementation, each.config, *at, each.cost_ns);
  if (measured.empty())
    for (const store::Choice& each : record.choices)
      if (const auto region = manifest::parse_region(op, *bucket, each.sizes))
        measure(each.implementation, each.config, region->high, each.cost_ns);
  if (measured.empty()) return;
  for (MeasuredConfig& each : measured) each.log_ratio = each.sum / each.samples;

  // The bucket's median is kept apart: a common factor says nothing about a single config.
  const double distance = axis_distance(op, *bucket, bucket_.edge) + device_distance(*device, *bucket_.device);
  const double weight = std::pow(weight_a_bucket_doubling, distance), offset = median_ratio(measured);
  offset_sum_ += weight * offset;
  offset_weight_ += weight;
  for (const MeasuredConfig& each : measured) points_.push_back({each, each.log_ratio - offset, weight});
}

double Prior::correction(const manifest::Variant& variant) const {
  double sum = 0, weights = weight_of_model;
  for (const Point& point : points_) {
    if (point.implementation != variant.implementation) continue;
    const double distance = config_distance(point.config, variant.config);
    if (distance > farthest_config) continue;
    const double weight = point.weight * std::pow(weight_a_parameter_doubling, distance);
    sum += weight * point.excess;
    weights += weight;
  }
  const double offset = offset_weight_ > 0 ? offset_sum_ / offset_weight_ : 0;
  return std::exp(offset + sum / weights);
}

std::vector<manifest::Variant> Prior::transferred(std::size_t at_most) const {
  return {winners_.begin(), winners_.begin() + static_cast<std::ptrdiff_t>(std::min(at_most, winners_.size()))};
}

}  // namespace kiln::answer

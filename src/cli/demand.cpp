#include "cli/demand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "answer/expected_times.hpp"
#include "answer/stale.hpp"
#include "cli/next_step.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

/// Launches of a bucket, and the equivalent number of launches at its upper edge.
struct Counted {
  std::int64_t launches = 0;
  double at_edge = 0;
};
using Tally = std::vector<std::pair<OpBucket, Counted>>;

Tally count_histogram(const std::vector<store::HistogramRow>& rows, const manifest::Catalogue& ops,
                      const manifest::DeviceFacts& device, std::int64_t& unknown) {
  std::map<std::pair<const manifest::Op*, std::string>, std::pair<OpBucket, Counted>> buckets;
  for (const store::HistogramRow& row : rows) {
    const manifest::Op* op = ops.op(row.op);
    const auto problem = op == nullptr ? std::nullopt : manifest::parse_bucket(*op, row.problem);
    if (!problem) {
      unknown = store::capped_sum(unknown, row.launches);
      continue;
    }
    const Problem edge = manifest::bucket_of(*op, *problem);
    auto& [bucket, counted] = buckets[{op, manifest::to_string(*op, edge)}];
    bucket = {op, edge};
    counted.launches = store::capped_sum(counted.launches, row.launches);
    counted.at_edge += static_cast<double>(row.launches) * answer::relative_cost({*op, device}, *problem, edge);
  }
  Tally counts;
  for (const auto& [key, bucket] : buckets) counts.push_back(bucket);
  return counts;
}

Tally one_each(const std::vector<OpBucket>& buckets) {
  Tally counts;
  for (const OpBucket& bucket : buckets) counts.push_back({bucket, {1, 1}});
  return counts;
}

std::vector<store::HistogramRow> rows_of(const DemandSource& source, store::Layers& layers) {
  const store::Layer& overlay = layers.readable_overlay();
  auto rows = source.histogram.empty() ? overlay.file->histogram() : open_records(source.histogram)->histogram();
  if (!rows.empty()) return rows;
  if (source.histogram.empty() && !overlay.refused.empty())
    throw Error(ErrorKind::io, "no counted launches are read: " + overlay.refused);
  throw Error(
      ErrorKind::bad_input,
      fmt::format(
          "{} counts no launches; engines write counts to their overlay every minute and at exit, unless Options::histogram is off",
          source.histogram.empty() ? "the " + name_of(overlay) : source.histogram));
}

std::vector<OpBucket> buckets_with_records(const manifest::Catalogue& ops, const manifest::DeviceFacts& device,
                                           store::Layers& layers) {
  std::vector<OpBucket> buckets;
  for (const manifest::Op& op : ops.all())
    for (const manifest::Bucket& bucket : answer::recorded_buckets({op, device, Regime::cold_l2}, layers))
      buckets.push_back({&op, bucket.edge});
  if (buckets.empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("the overlay and the bases have no record of {}; name its file with --base",
                            device.device_class()));
  return buckets;
}

void require_one(const DemandSource& source) {
  const int given =
      (source.workloads.empty() ? 0 : 1) + (source.from_histogram ? 1 : 0) + (source.from_records ? 1 : 0);
  if (given == 0) throw Error(ErrorKind::bad_input, "name a workload, or give --from-histogram or --from-records");
  if (given > 1) throw Error(ErrorKind::bad_input, "give only one of a workload, --from-histogram and --from-records");
}

}  // namespace

double Demands::launch_share(const CountedBucket& of) const {
  return launches > 0 ? static_cast<double>(of.launches) / static_cast<double>(launches) : 0;
}

double Demands::time_share(const CountedBucket& of) const { return time_ns > 0 ? of.time_ns / time_ns : 0; }

std::vector<OpBucket> Demands::in_order() const {
  std::vector<OpBucket> order;
  for (const CountedBucket& each : buckets) order.push_back(each.of);
  return order;
}

void declare_demand(CLI::App& command, DemandSource& source) {
  command
      .add_option(
          "workload", source.workloads,
          "The problems that will be launched (such as those installed in share/kiln/workloads, by bare name); of several files, all of them")
      ->type_name("WORKLOAD.toml");
  command
      .add_option_function<std::vector<std::string>>(
          "--from-histogram",
          [&source](const std::vector<std::string>& files) {
            source.from_histogram = true;
            if (!files.empty()) source.histogram = files.front();
          },
          "Instead of a workload, use the launches that engines counted in the overlay or in this file")
      ->expected(0, 1)
      ->type_name("[FILE]");
  command.add_flag("--from-records", source.from_records,
                   "Instead of a workload, use the buckets that the overlay and the bases have records of");
}

std::string prewarm_command(const DemandSource& source) {
  std::string command = "kiln prewarm";
  for (const std::string& workload : source.workloads) command += " " + shell_word(workload);
  if (source.from_histogram) command += " --from-histogram";
  if (!source.histogram.empty()) command += " " + shell_word(source.histogram);
  if (source.from_records) command += " --from-records";
  return command;
}

bool names_op_of_team(const DemandSource& source, const manifest::Catalogue& ops) {
  require_one(source);
  return std::ranges::any_of(read_entries(source.workloads), [&](const WorkloadEntry& each) {
    const manifest::Op* op = ops.op(each.op);
    return op != nullptr && op->is_of_team();
  });
}

void check_demand(const DemandSource& source, const manifest::Catalogue& ops, int world) {
  require_one(source);
  read_workloads(source.workloads, ops, world);
}

Demands read_demands(const DemandSource& source, const manifest::Catalogue& ops, const manifest::DeviceFacts& device,
                     store::Layers& layers, int world) {
  require_one(source);
  Demands demands;
  demands.counted = source.from_histogram;
  const Tally counts = source.from_histogram
                           ? count_histogram(rows_of(source, layers), ops, device, demands.unknown_launches)
                       : source.from_records ? one_each(buckets_with_records(ops, device, layers))
                                             : one_each(read_workloads(source.workloads, ops, world));
  answer::ExpectedTimes times(device, Regime::cold_l2, layers);
  for (const auto& [bucket, counted] : counts) {
    const double ns = times.of(*bucket.op, bucket.bucket);
    demands.buckets.push_back({bucket, counted.launches, ns * counted.at_edge});
    demands.launches = store::capped_sum(demands.launches, counted.launches);
    demands.time_ns += demands.buckets.back().time_ns;
  }
  if (demands.counted)
    std::stable_sort(demands.buckets.begin(), demands.buckets.end(),
                     [](const CountedBucket& a, const CountedBucket& b) { return a.time_ns > b.time_ns; });
  return demands;
}

std::vector<OpBucket> counted_buckets(const DemandSource& source, const manifest::Catalogue& ops, store::Layers& layers,
                                      std::int64_t& unknown) {
  std::vector<std::pair<OpBucket, std::int64_t>> counts;
  for (const store::HistogramRow& row : rows_of(source, layers)) {
    const manifest::Op* op = ops.op(row.op);
    const auto problem = op == nullptr ? std::nullopt : manifest::parse_bucket(*op, row.problem);
    if (!problem) {
      unknown = store::capped_sum(unknown, row.launches);
      continue;
    }
    const OpBucket bucket{op, manifest::bucket_of(*op, *problem)};
    const auto known =
        std::find_if(counts.begin(), counts.end(), [&](const auto& each) { return each.first == bucket; });
    if (known == counts.end())
      counts.emplace_back(bucket, row.launches);
    else
      known->second = store::capped_sum(known->second, row.launches);
  }
  if (counts.empty()) refuse_unknown(source, unknown);
  std::stable_sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<OpBucket> buckets;
  for (const auto& [bucket, launches] : counts) buckets.push_back(bucket);
  return buckets;
}

std::string text_of_unknown(std::int64_t launches) {
  return fmt::format("about {} {} of ops or sizes that no loaded op has", counted(launches, "launch"),
                     verb(launches, "is", "are"));
}

void refuse_unknown(const DemandSource& source, std::int64_t launches) {
  throw Error(
      ErrorKind::bad_input,
      fmt::format(
          "{} counts only launches of ops or sizes that no loaded op has, about {}; name the folder of an op of your own with --templates or KILN_TEMPLATE_PATH",
          source.histogram.empty() ? "the overlay" : source.histogram, launches));
}

std::size_t buckets_for_share(const Demands& demands, double share) {
  double covered = 0;
  std::size_t count = 0;
  while (count < demands.buckets.size() && covered < share * demands.time_ns * (1 - 1e-12))
    covered += demands.buckets[count++].time_ns;
  return count;
}

bool is_below(double share, double percent) {
  constexpr double rounding = 1e-9;
  return 100 * share + rounding < percent;
}

std::string format_share(double share, double limit) {
  std::string text = fmt::format("{:.1f}", 100 * share);
  for (int digits = 2; is_below(share, limit) && std::stod(text) >= limit && digits < 10; ++digits)
    text = fmt::format("{:.{}f}", 100 * share, digits);
  return text + " %";
}

}  // namespace kiln::cli

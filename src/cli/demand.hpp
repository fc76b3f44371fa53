// The demand for each bucket: launches that engines counted, the problems of a workload, or what the files hold.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/workload.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

struct CountedBucket {
  OpBucket of;
  std::int64_t launches = 0;
  double time_ns = 0;  // expected, of all launches
};

struct Demands {
  std::vector<CountedBucket> buckets;  // counted: the most time first; of a workload: in its order
  std::int64_t launches = 0;           // of all buckets
  double time_ns = 0;
  std::int64_t unknown_launches = 0;  // of an op or a problem that is not loaded
  bool counted = false;               // false: each bucket counts as one launch

  [[nodiscard]] double launch_share(const CountedBucket& of) const;
  [[nodiscard]] double time_share(const CountedBucket& of) const;
  [[nodiscard]] std::vector<OpBucket> in_order() const;
};

/// Where demand is read from: workloads, counted launches, or records. One of the first three is set.
struct DemandSource {
  std::vector<std::string> workloads;  // files
  bool from_histogram = false;
  bool from_records = false;  // the buckets that the overlay and the bases have records of
  std::string histogram;      // a file with counts; empty: the overlay
};
void declare_demand(CLI::App& command, DemandSource& source);
/// "kiln prewarm w.toml x.toml", "kiln prewarm --from-histogram FILE" or "kiln prewarm --from-records"
std::string prewarm_command(const DemandSource& source);
/// Whether workloads are set that name an op of a team. Throws Error(bad_input) unless exactly one source is set, and
/// as read_entries does.
bool names_op_of_team(const DemandSource& source, const manifest::Catalogue& ops);
/// Throws Error(bad_input) unless exactly one source is set, and what reading the workload throws. Needs no device
/// and opens no layer. `world` as in parse_problem_set.
void check_demand(const DemandSource& source, const manifest::Catalogue& ops, int world = 0);
/// Throws as check_demand does, Error(bad_input) for an empty histogram or where no record is of the device, and what
/// reading them throws.
Demands read_demands(const DemandSource& source, const manifest::Catalogue& ops, const manifest::DeviceFacts& device,
                     store::Layers& layers, int world = 0);

/// The buckets of counted launches, the most launched first. Adds launches of no loaded op or problem to `unknown`.
/// Needs no device. Throws Error(bad_input) where no loaded op has any, and what reading them throws.
std::vector<OpBucket> counted_buckets(const DemandSource& source, const manifest::Catalogue& ops, store::Layers& layers,
                                      std::int64_t& unknown);

/// Throws Error(bad_input): all launches that the source counts are of ops or sizes that no loaded op has.
[[noreturn]] void refuse_unknown(const DemandSource& source, std::int64_t launches);
/// "about 64 launches are of ops or sizes that no loaded op has"
std::string text_of_unknown(std::int64_t launches);

/// Returns how many of the first buckets take `share` of the time.
std::size_t buckets_for_share(const Demands& demands, double share);

/// Whether a share is less than so many percent. Rounding errors do not count.
bool is_below(double share, double percent);
/// Returns "93.1 %", with more decimals where one would show a share that is below `limit` percent as `limit` or more.
std::string format_share(double share, double limit = 100);

}  // namespace kiln::cli

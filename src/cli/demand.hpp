// How much each bucket is wanted: by launches that an engine counted, or by a workload that only names problems.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/workload.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

struct Demand {
  OpBucket of;
  std::int64_t launches = 0;
  double time_ns = 0;  // of all of them, as expected
};

struct Demands {
  std::vector<Demand> buckets;  // those that take most time first
  std::int64_t launches = 0;    // of all buckets
  double time_ns = 0;
  std::int64_t unknown_launches = 0;  // of an op or a problem that these ops do not have: an older program's
  bool counted = false;               // else each bucket of a workload stands for one launch

  [[nodiscard]] double launch_share(const Demand& of) const;
  [[nodiscard]] double time_share(const Demand& of) const;
  [[nodiscard]] std::vector<OpBucket> in_order() const;
};

/// Where demand is read from: one of the two is set.
struct DemandSource {
  std::string workload;
  bool from_histogram = false;
  std::string histogram;  // a file that engines counted in; empty: the overlay
};
void declare_demand(CLI::App& command, DemandSource& source);
/// Throws Error(bad_input) unless one of the two is set, what reading them throws, and for a histogram that counts nothing.
Demands read_demands(const DemandSource& source, std::span<const manifest::Op> ops, const manifest::DeviceFacts& device,
                     store::Layers& layers);

/// The first buckets that come to `share` of the time.
std::size_t buckets_for_share(const Demands& demands, double share);

std::string format_share(double share);  // "93.1 %"

}  // namespace kiln::cli

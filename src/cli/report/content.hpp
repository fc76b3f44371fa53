// What a report is about, as values: gathered from files once, then drawn.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/stale.hpp"
#include "manifest/problem.hpp"
#include "store/layers.hpp"

namespace kiln::cli::report {

/// A file that was asked, or refused.
struct Source {
  std::string name;
  bool overlay = false;
  std::string refused;  // why, or empty
  store::FileStats stats;
};

/// The candidates of one record.
struct Trials {
  std::vector<double> costs_ns;            // at the bucket's upper edge, of those that came out right, rising
  std::array<std::int64_t, 5> verdicts{};  // how many, by store::Verdict
  std::string reason;                      // of the first that failed
};

/// What serves some sizes, and how long it takes there.
struct TimedSizes {
  Problem at;
  double cost_ns = 0, baseline_ns = 0;  // 0 where that of the default is not known
  std::string config;                   // "block_row threads=256"
};

/// One answer: the first file's record of a key.
struct Entry {
  store::Record record;  // without candidates
  std::size_t source = 0;
  engine::Standing standing = engine::Standing::unknown;
  const manifest::Op* op = nullptr;  // null when no present op forms the record's key; then what follows is empty
  manifest::DeviceFacts device;
  Problem bucket;               // upper edges
  double bytes = 0, flops = 0;  // that one launch moves and computes at the upper edge; 0 where the op does not say
  /// By size, the last one the upper edge: where candidates were timed, else the upper ends of the choices' sizes.
  std::vector<TimedSizes> times;
  std::optional<Trials> trials;  // nothing where the file has none, or too many records came before
};

/// A bucket that was launched and has no record.
struct Missing {
  std::string op, bucket;
  std::int64_t launches = 0;
  std::int64_t problems = 0;  // distinct real sizes
};

struct Filter {
  std::string op, device_class;  // empty: all
  std::string present_device;  // the class of the device that is here, or empty: its records are what launches can miss
};

struct Content {
  Content() = default;
  Content(Content&&) = default;  // entries point into `ops`
  Content& operator=(Content&&) = delete;

  std::vector<manifest::Op> ops;
  std::vector<Source> sources;
  std::vector<Entry> entries;                    // by key, numbers by their value
  std::map<std::string, std::string> devices;    // class -> a name for people
  std::int64_t hidden = 0;                       // records behind an earlier file's of the same key
  std::map<std::string, std::int64_t> launches;  // by origin
  std::map<std::string, std::int64_t> misses;    // by reason
  std::vector<Missing> missing;                  // most launched first
  std::int64_t counted_problems = 0;             // of the histograms
  std::int64_t unreadable_problems = 0;          // of those, what no present op can be asked
};

/// `names`: what to call each layer, in order; a layer without one goes by its path.
Content gather(std::vector<manifest::Op> ops, store::Layers& layers, const std::vector<std::string>& names,
               const Filter& filter);

}  // namespace kiln::cli::report

// Which records lie near a bucket: what was learnt there may hold here.
#pragma once

#include <vector>

#include "kiln/options.hpp"
#include "manifest/problem.hpp"
#include "store/layers.hpp"

namespace kiln::tune {

/// How many doublings lie between two problems: the sum over axes of |log2(ratio of sizes)|. Each axis counts for itself, so that
/// 1 x 4096 and 4096 x 1 are 24 apart though they hold as many elements.
double axis_distance(const manifest::Op& op, const Problem& a, const Problem& b) noexcept;

/// How many doublings lie between two devices, over multiprocessors, L2, shared memory and memory bus; another compute capability
/// counts as four more. 0 for one device class.
double device_distance(const manifest::DeviceFacts& a, const manifest::DeviceFacts& b) noexcept;

/// A record that may say something about a bucket: of the same op, revision, regime and selections.
struct NearRecord {
  store::Found<store::Record> found;
  Problem bucket;
  manifest::DeviceFacts device;
  bool same_device = false;  // of the same device class
  double distance = 0;       // axis_distance + device_distance
};
/// Every such record of every layer: those of this device class first, then by distance, then by key, then by layer. A record of
/// the bucket itself is one of them, at distance 0.
std::vector<NearRecord> near_records(store::Layers& layers, const manifest::Op& op, const Problem& bucket,
                                     const manifest::DeviceFacts& device, Regime regime);

/// A config of one of Kiln's own kernels, launched as a search tries it.
struct Winner {
  const manifest::Implementation* implementation = nullptr;
  manifest::Config config;
  bool operator==(const Winner&) const = default;
};
/// Adds the record's configs that are legal in `bucket`, each once, that of the record's upper edge first.
void add_winners(std::vector<Winner>& winners, const manifest::Op& op, const Problem& bucket,
                 const manifest::DeviceFacts& device, const store::Record& record);

/// The first `at_most` of them, each key once, with the candidates that were kept.
std::vector<store::Record> neighbours(store::Layers& layers, const manifest::Op& op, const Problem& bucket,
                                      const manifest::DeviceFacts& device, Regime regime, std::size_t at_most);

}  // namespace kiln::tune

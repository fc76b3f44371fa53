// Finds the records near a bucket, whose measurements and winners may hold in it.
#pragma once

#include <vector>

#include "manifest/variant.hpp"
#include "store/layers.hpp"

namespace kiln::answer {

/// Returns the doublings between two problems: the sum over axes of |log2(ratio of sizes)|. So 1 x 4096 and 4096 x 1
/// are 24 apart.
double axis_distance(const manifest::Op& op, const Problem& a, const Problem& b) noexcept;

/// Returns the doublings between two devices, summed over multiprocessors, L2, shared memory and memory bus, plus four
/// for another compute capability. 0 for equal device classes.
double device_distance(const manifest::DeviceFacts& a, const manifest::DeviceFacts& b) noexcept;

/// A record with the op, revision, regime and selections of a bucket.
struct NearRecord {
  store::Found<store::Record> found;
  Problem bucket;
  manifest::DeviceFacts device;
  bool same_device = false;  // equal device class
  double distance = 0;       // axis_distance + device_distance
};
/// Returns every such record of every layer: this device class first, then by distance, key and layer. A record of the
/// bucket itself is among them, at distance 0.
std::vector<NearRecord> near_records(store::Layers& layers, const manifest::Bucket& bucket);

/// Adds the record's configs of Kiln's own kernels that are legal in the bucket, with the launch that a search tries,
/// without duplicates, from the record's upper edge down.
void add_winners(std::vector<manifest::Variant>& winners, const manifest::Bucket& bucket, const store::Record& record);

/// Returns the first `at_most` of near_records(), each key once, with their candidates.
std::vector<store::Record> neighbours(store::Layers& layers, const manifest::Bucket& bucket, std::size_t at_most);

}  // namespace kiln::answer

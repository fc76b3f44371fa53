// The records of an op arranged by their sizes, for commands that ask about many buckets: neighbours() reads and sorts
// all records each time.
//
// Records of equal selections lie in one tree for this device class and one for the others. A tree is a k-d tree over
// the logarithms of the sizes and the distance of the device, since a distance is the sum of the differences of these
// (neighbours.hpp). A query visits few records where their sizes differ, so that many queries of many records do not
// cost their product.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "answer/neighbours.hpp"

namespace kiln::answer {

class NearIndex {
 public:
  /// Reads the op's records of all layers, as near_records() does.
  NearIndex(store::Layers& layers, const manifest::Site& site);
  /// Returns what neighbours() returns for the bucket. Reads the candidates of each record once.
  std::vector<store::Record> nearest(const Problem& bucket, std::size_t at_most);
  /// Returns how many records the queries so far have compared with their buckets.
  [[nodiscard]] std::int64_t compared() const noexcept { return compared_; }

 private:
  static constexpr std::size_t dimensions = max_axes + 1;  // the device's distance is the last
  using Place = std::array<double, dimensions>;

  struct Entry {
    store::Found<store::Record> found;
    Place place{};
    bool has_candidates = false;
  };
  struct Node {
    std::size_t entry = 0;
    std::size_t dimension = 0;  // by which the nodes before it and after it are parted
  };
  /// The root of a range of nodes is its middle; before it lie those with lesser or equal places in its dimension.
  using Tree = std::vector<Node>;
  using Selections = decltype(Problem::selections);
  struct Near {
    double distance = 0;
    std::size_t entry = 0;
  };
  struct Query {
    Place place{};
    Place missed{};  // per dimension: how far the range in hand lies from the place at least
    std::size_t at_most = 0;
    std::vector<Near> found{};  // ascending
  };

  [[nodiscard]] Place place_of(const Problem& problem, double device_distance) const;
  void arrange(std::span<Node> nodes);
  void search(std::span<const Node> nodes, Query& query);
  void offer(std::size_t entry, Query& query);
  store::Record take(Entry& entry);

  store::Layers& layers_;
  const manifest::Op& op_;
  std::vector<Entry> entries_;
  std::map<std::pair<Selections, bool>, Tree> trees_;  // by whether they are of another device class
  std::int64_t compared_ = 0;
};

}  // namespace kiln::answer

// The text of a workload file, entry by entry.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "manifest/problem_set.hpp"

namespace kiln::cli {

using Sizes = std::vector<std::int64_t>;
using Words = std::vector<std::string>;
/// Names of axes, or of types and choices, with their values as TOML has them.
using Values = std::vector<std::pair<std::string, std::string>>;

std::string toml(std::int64_t size);
std::string toml(const manifest::SizeRange& range);
std::string toml(const Sizes& sizes);
std::string toml(const Words& words);

/// The last size of the bucket of powers of two that `size` is in.
std::int64_t pow2_ceil(std::int64_t size);
/// Sizes in the order in which they came, each once, without zeros.
Sizes distinct(std::initializer_list<std::int64_t> sizes);
/// One size of each bucket of powers of two that the range meets.
Sizes lengths_of(const manifest::SizeRange& range);

class WorkloadEntries {
 public:
  explicit WorkloadEntries(std::string dtype) : dtype_(std::move(dtype)) {}
  /// The entry has the model's dtype beside `types`.
  void add(const char* comment, const char* op, const Values& axes, Values types = {});
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string dtype_;
  std::string text_;
};

}  // namespace kiln::cli

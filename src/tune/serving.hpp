// What a record's choices can do on a device: which are declared and legal here, and for which sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manifest/region.hpp"
#include "tune/deploy.hpp"

namespace kiln::tune {

/// A choice that can serve.
struct Serving {
  manifest::Region region;
  Usable usable;  // with an implementation
  store::Choice choice;
  /// What it was timed at and is made ready for: the bucket with its open axes at the region's upper ends.
  [[nodiscard]] const Problem& at() const noexcept { return region.high; }
};

/// In the order of the record. Where a library cannot serve here, its sizes are missing in `fastest`, and those of `without_library`
/// cover them.
struct Servings {
  std::vector<Serving> fastest;
  std::vector<Serving> without_library;  // empty where no choice of the record is a library's
  std::int64_t unusable = 0;             // choices whose sizes, implementation or config are not declared, or not legal
  std::string why_not;                   // of the first of those
  [[nodiscard]] bool any() const noexcept { return !fastest.empty() || !without_library.empty(); }
};

/// `bucket`: the record's, or another one of the same selections that it is to stand in for. Where that differs in open axes, all choices
/// serve all of `bucket`, those of the record's upper edge first. Where a context is current, a library is asked whether it is here and takes the config.
Servings servings_of(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device,
                     const store::Record& record);

}  // namespace kiln::tune

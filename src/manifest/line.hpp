// Where a value of a manifest stands.
#pragma once

#include <memory>
#include <string>

namespace kiln::manifest {

/// A line of a manifest, or of a part that it includes.
struct Line {
  Line(int line = 1) : number(line) {}  // NOLINT(google-explicit-constructor): of the manifest itself
  int number;
  std::shared_ptr<const std::string> part;  // the part's file as messages show it; null: the manifest itself
};

}  // namespace kiln::manifest

// What NVRTC writes of a failed compile, as findings.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "check/finding.hpp"

namespace kiln::check {

/// A name expression that was compiled, with the line of its pass's kernel in the manifest.
struct NamedPass {
  std::string name, file;
  manifest::Line line;
};

/// Adds the errors and warnings of a log. One about a name expression is about its pass. Returns whether there was one.
bool add_log(std::string_view log, std::span<const NamedPass> passes, const std::string& at, Findings& findings);

}  // namespace kiln::check

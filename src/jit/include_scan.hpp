// Finds the files that a source includes, and refuses what could reach past them. Private to the module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::jit {

struct Inclusion {
  std::string name;
  bool angled = false;  // <name> rather than "name"
  int line = 0;
};

/// Returns every #include and __has_include of a template's source, those of untaken conditionals included. `shown` names the file in
/// messages. Throws Error(compile_failed) for the constructs that include_closure() lists.
std::vector<Inclusion> scan_template(std::string_view shown, std::string_view text);

/// Returns the includes of a toolkit header, which is trusted. Skips ambiguous text and includes computed by macros.
std::vector<Inclusion> scan_toolkit_header(std::string_view text);

}  // namespace kiln::jit

// Finds the files that a source includes, and refuses what could reach past them. Private to the module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/macro_scan.hpp"

namespace kiln::jit {

struct Inclusion {
  std::string name;
  bool angled = false;  // <name> rather than "name"
  int line = 0;
};

/// Returns every #include and __has_include of a template's source, those of untaken conditionals included. `shown`
/// names the file in messages. Adds the macros that it defines to `macros`, if given. Throws Error(compile_failed) for
/// the constructs that include_closure() lists.
std::vector<Inclusion> scan_template(std::string_view shown, std::string_view text,
                                     std::vector<Macro>* macros = nullptr);

struct HeaderScan {
  std::vector<Inclusion> inclusions;
  std::vector<Macro> macros;
  bool names_callers_place = false;  // any identifier of it does
};
/// Scans a toolkit header, which is trusted. Skips ambiguous text and includes computed by macros. A macro with
/// ambiguous text counts as one that stringises.
HeaderScan scan_toolkit_header(std::string_view text);

}  // namespace kiln::jit

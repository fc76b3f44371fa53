// What a source asks the compiler to read, found before the compiler sees it. Private to the module.
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

/// Every #include and __has_include of a template's source, in conditionals too, whether they hold or not. `shown` is the
/// file as messages name it. Throws Error(compile_failed) for what would let the source reach past the files it declares, or
/// make its bytes depend on more than them: see include_closure().
std::vector<Inclusion> scan_template(std::string_view shown, std::string_view text);

/// The includes of a toolkit header, which is trusted: what cannot be read or is computed by macros is skipped.
std::vector<Inclusion> scan_toolkit_header(std::string_view text);

}  // namespace kiln::jit

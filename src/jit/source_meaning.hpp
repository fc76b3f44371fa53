// What a compiler reads of a source: its tokens, without comments, layout and the names of the files that it includes.
// Private to the module.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "jit/macro_scan.hpp"

namespace kiln::jit {

/// Which blanks outside of directives count: those that part tokens, or all, where a macro makes literals of its
/// arguments.
enum class Blanks : std::uint8_t { that_part, all };

/// Brings sources into a form that two of them share only if they compile to the same instructions.
///
///   form      := (token | " " | directive)*   tokens as they are written, without line splices
///   directive := LF "#" NAME (token | " ")* LF
///              | LF "#include" ("@" INDEX "@" | header name) (token | " ")* LF
///
/// A blank stands for blanks, comments and, outside of directives, line ends. In directives it stands wherever the
/// source has some between two tokens. Elsewhere, with Blanks::that_part, only where the two tokens would be read as
/// others without it.
class SourceMeaning {
 public:
  /// Returns the index of a file that is compiled with the source, by the name in the include.
  using IndexOf = std::function<std::optional<std::size_t>(std::string_view name)>;

  /// `revealing`: macros of other headers through which more than the tokens may reach the machine code.
  SourceMeaning(IndexOf index_of, MacroNames revealing, Blanks blanks)
      : index_of_(std::move(index_of)), revealing_(std::move(revealing)), blanks_(blanks) {}

  /// Returns the form, valid until the next call. Returns nothing where more than the tokens may reach the machine code
  /// (names_its_place(),
  /// #line, __has_include of a file with an index), and for text that compilers may read in different ways.
  std::optional<std::string_view> of(std::string_view text);

 private:
  friend class FormWriter;
  IndexOf index_of_;
  MacroNames revealing_;
  Blanks blanks_;
  std::string joined_;  // a source without its line splices
  std::string form_;
};

}  // namespace kiln::jit

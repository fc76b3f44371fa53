// A text table with aligned columns, and text that fits a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/output.hpp"

namespace kiln::cli {

class Table {
 public:
  /// A heading that begins with '>' aligns its column to the right: "> time".
  explicit Table(std::vector<std::string> headings);
  /// Adds one cell a column; missing cells are empty.
  void row(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  /// Where all cells of the last column that are not empty say the same, removes it and returns what they say; else "".
  std::string take_common_last();
  /// Returns headings and rows, each line after `indent` spaces, with two spaces between columns and no trailing
  /// spaces. If `width` columns do not hold a row, its left-aligned cells go on in further lines, and words are cut
  /// only if nothing else helps. 0: one line a row, as programs read it.
  [[nodiscard]] std::string text(int indent = 0, std::size_t width = output_width()) const;

 private:
  struct Column {
    std::string heading;
    bool right = false;
    std::size_t width = 0;
    std::size_t word = 0;  // of its longest word
  };
  [[nodiscard]] std::vector<std::size_t> fitted(int indent, std::size_t width) const;
  /// Narrows the widest columns to `least`, one after another, until `line` fits `width`.
  static void narrow(std::vector<std::size_t>& widths, const std::vector<std::size_t>& least, std::size_t& line,
                     std::size_t width);
  void append(std::string& text, const std::vector<std::string>& cells, int indent,
              const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Returns text in lines of `width` at most, cut at spaces, else behind a comma or slash, else anywhere.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);
/// Wraps lines of help in two columns, "  --name   what it does", within the second; 0: leaves them as they are.
std::string wrapped_help(std::string_view text, std::size_t width = output_width());

}  // namespace kiln::cli

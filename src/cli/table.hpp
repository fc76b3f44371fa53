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
  /// spaces. If `width` columns do not hold a row, its left-aligned cells go on in further lines. If words would be cut
  /// then, each row is its first cell, and below it the other cells with their headings. 0: one line a row, as programs
  /// read it.
  [[nodiscard]] std::string text(int indent = 0, std::size_t width = output_width()) const;

 private:
  struct Column {
    std::string heading;
    bool right = false;
    std::size_t width = 0;
    std::size_t word = 0;  // of its longest word
  };
  /// Returns the columns' widths; none where a row does not fit.
  [[nodiscard]] std::vector<std::size_t> fitted(std::size_t indent, std::size_t width) const;
  [[nodiscard]] std::size_t lines_at(const std::vector<std::size_t>& widths) const;
  /// Moves columns from one to another, no column under its `least`, while the table becomes shorter.
  void balance(std::vector<std::size_t>& widths, const std::vector<std::size_t>& least) const;
  void append_stacked(std::string& text, const std::vector<std::string>& cells, std::size_t indent,
                      std::size_t width) const;
  void append(std::string& text, const std::vector<std::string>& cells, std::size_t indent,
              const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Returns `at`, or the nearest place before it, else after it, that cuts no UTF-8 character.
std::size_t between_characters(std::string_view text, std::size_t at);
/// Returns text in lines of `width` at most, cut at spaces, else behind a comma or slash, else anywhere.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);
/// Returns the lines of `text`, each wrapped to `width` with the rest of it after `hanging` spaces; 0: leaves it as it
/// is.
std::string wrapped_text(std::string_view text, std::size_t hanging = 0, std::size_t width = output_width());
/// Joins the lines of each paragraph and wraps it to `width`; 0: leaves the text as it is. Indented lines, items of a
/// list and what follows a blank line or a short line that ends a sentence begin anew.
std::string reflowed(std::string_view text, std::size_t width = output_width());
/// Returns a command's indented line, or where it is wider several that end in a backslash. Divides it before an option
/// where it can, and never a quoted word. 0: one line.
std::string wrapped_command(std::string_view command, std::size_t width = output_width());
/// Wraps lines of help in two columns, "  --name   what it does", within the second; 0: leaves them as they are.
std::string wrapped_help(std::string_view text, std::size_t width = output_width());

}  // namespace kiln::cli

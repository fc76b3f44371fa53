// A text table with aligned columns.
#pragma once

#include <string>
#include <vector>

namespace kiln::cli {

class Table {
 public:
  /// A heading that begins with '>' aligns its column to the right: "> time".
  explicit Table(std::vector<std::string> headings);
  /// Adds one cell a column; missing cells are empty.
  void row(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  /// Returns headings and rows, each line after `indent` spaces, with two spaces between columns and no trailing
  /// spaces.
  [[nodiscard]] std::string text(int indent = 0) const;

 private:
  struct Column {
    std::string heading;
    bool right = false;
    std::size_t width = 0;
  };
  void append_line(std::string& text, const std::vector<std::string>& cells, int indent) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kiln::cli

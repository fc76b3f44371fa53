// Columns that line up.
#pragma once

#include <string>
#include <vector>

namespace kiln::cli {

class Table {
 public:
  /// A heading that begins with '>' makes its column flush right: "> time".
  explicit Table(std::vector<std::string> headings);
  /// One cell a column; missing ones are empty.
  void row(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  /// Headings, then the rows, two spaces between columns, no trailing spaces. `indent` spaces stand before each line.
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

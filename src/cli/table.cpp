#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manifest/text.hpp"

namespace kiln::cli {

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    Column column;
    column.right = heading.starts_with('>');
    if (column.right) heading.erase(0, heading.find_first_not_of("> "));
    column.width = heading.size();
    column.heading = std::move(heading);
    columns_.push_back(std::move(column));
  }
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells)
    cell = manifest::printable(cell);  // escaped now, so that its width is that of the printed text
  for (std::size_t i = 0; i < cells.size(); ++i) columns_[i].width = std::max(columns_[i].width, cells[i].size());
  rows_.push_back(std::move(cells));
}

void Table::append_line(std::string& text, const std::vector<std::string>& cells, int indent) const {
  std::string line(static_cast<std::size_t>(indent), ' ');
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += "  ";
    line += columns_[i].right ? fmt::format("{:>{}}", cells[i], columns_[i].width)
                              : fmt::format("{:<{}}", cells[i], columns_[i].width);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + '\n';
}

std::string Table::text(int indent) const {
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  std::string text;
  if (std::any_of(headings.begin(), headings.end(), [](const std::string& heading) { return !heading.empty(); }))
    append_line(text, headings, indent);
  for (const auto& cells : rows_) append_line(text, cells, indent);
  return text;
}

}  // namespace kiln::cli

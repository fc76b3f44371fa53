#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

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

std::vector<std::size_t> Table::fitted(int indent, std::size_t width) const {
  constexpr std::size_t least = 12;  // of a column that is made narrower
  std::vector<std::size_t> widths;
  std::size_t line = static_cast<std::size_t>(indent) + 2 * (columns_.size() - 1);
  for (const Column& column : columns_) {
    widths.push_back(column.width);
    line += column.width;
  }
  while (width > 0 && line > width) {
    std::size_t widest = columns_.size(), next = least;  // the widest column, and the width of the one after it
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].right || widths[i] <= least) continue;
      if (widest == columns_.size() || widths[i] > widths[widest]) {
        if (widest < columns_.size()) next = std::max(next, widths[widest]);
        widest = i;
      } else {
        next = std::max(next, widths[i]);
      }
    }
    if (widest == columns_.size()) break;
    const std::size_t wanted = widths[widest] - std::min(widths[widest] - least, line - width);
    const std::size_t narrower = std::max(wanted, std::min(next, widths[widest] - 1));
    line -= widths[widest] - narrower;
    widths[widest] = narrower;
  }
  return widths;
}

void Table::append(std::string& text, const std::vector<std::string>& cells, int indent,
                   const std::vector<std::size_t>& widths) const {
  std::vector<std::vector<std::string>> lines;
  std::size_t most = 1;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    lines.push_back(columns_[i].right ? std::vector{cells[i]} : wrapped(cells[i], widths[i]));
    most = std::max(most, lines.back().size());
  }
  for (std::size_t at = 0; at < most; ++at) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string_view cell = at < lines[i].size() ? std::string_view(lines[i][at]) : std::string_view();
      if (i > 0) line += "  ";
      line += columns_[i].right ? fmt::format("{:>{}}", cell, widths[i]) : fmt::format("{:<{}}", cell, widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
}

std::string Table::text(int indent, std::size_t width) const {
  const std::vector<std::size_t> widths = fitted(indent, width);
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  std::string text;
  if (std::any_of(headings.begin(), headings.end(), [](const std::string& heading) { return !heading.empty(); }))
    append(text, headings, indent, widths);
  for (const auto& cells : rows_) append(text, cells, indent, widths);
  return text;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (width > 0 && text.size() > width) {
    std::size_t end = text.find_last_of(' ', width), next = end + 1;
    if (end == std::string_view::npos || end == 0) {
      const std::size_t mark = text.find_last_of(",/", width - 1);
      end = next = mark == std::string_view::npos ? width : mark + 1;
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(next, text.size()));
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  if (lines.empty() || !text.empty()) lines.emplace_back(text);
  return lines;
}

std::string wrapped_help(std::string_view text, std::size_t width) {
  constexpr std::size_t least = 30;  // of the second column
  std::string all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t gap = line.find("  ", first);
    const std::size_t second = gap == std::string_view::npos ? first : line.find_first_not_of(' ', gap);
    if (width == 0 || line.size() <= width || second + least > width) {
      all.append(line) += '\n';
      continue;
    }
    const std::vector<std::string> rest = wrapped(line.substr(second), width - second);
    all.append(line.substr(0, second)).append(rest.front()) += '\n';
    for (std::size_t i = 1; i < rest.size(); ++i) all.append(second, ' ').append(rest[i]) += '\n';
  }
  return all;
}

}  // namespace kiln::cli

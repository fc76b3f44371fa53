#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "manifest/text.hpp"

namespace kiln::cli {

namespace {

constexpr std::size_t least_width = 12,
                      longest_kept = 28;  // of a column that is made narrower; of a word that is not cut

/// Returns the columns of the longest piece that wrapped() need not cut.
std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" ,/"), text.size());
    longest = std::max(longest, std::min(end + 1, text.size()) - (end < text.size() && text[end] == ' ' ? 1 : 0));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

/// Takes the first line, without its end, off `rest`.
std::string_view next_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

/// Joins the lines of a paragraph: a long one that ends no sentence, and the next, where neither is indented.
std::string with_whole_paragraphs(std::string_view text) {
  constexpr std::size_t least = 85;  // columns of a line that goes on in the next
  std::string all;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const bool ends = line.size() < least || line.front() == ' ' || line.ends_with('.') || line.ends_with(':');
    const bool apart = text.empty() || text.front() == ' ' || text.front() == '\n' || text.starts_with("Usage:");
    all.append(line) += ends || apart ? '\n' : ' ';
  }
  return all;
}

/// Appends a line of help. What it says in its second column goes on there, or below where little room is left for it.
void append_help_line(std::string& all, std::string_view line, std::size_t width) {
  constexpr std::size_t least = 30, below = 6;  // columns that a remark needs, and its indent below an example
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = std::min(line.find("  ", first), line.size());
  const bool alone = gap == line.size(), is_command = line.substr(first).starts_with("kiln ");
  if (line.size() <= width || (alone && is_command)) {
    all.append(line) += '\n';
    return;
  }
  std::size_t second = alone ? first : line.find_first_not_of(' ', gap);
  const std::vector<std::string> rest =
      wrapped(line.substr(second), second + least > width ? std::max(width, below + 1) - below : width - second);
  if (second + least > width) {
    if (!alone) all.append(line.substr(0, gap)) += '\n';
    second = below;
    all.append(second, ' ');
  } else {
    all.append(line.substr(0, second));
  }
  all.append(rest.front()) += '\n';
  for (std::size_t i = 1; i < rest.size(); ++i) all.append(second, ' ').append(rest[i]) += '\n';
}

}  // namespace

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    Column column;
    column.right = heading.starts_with('>');
    if (column.right) heading.erase(0, heading.find_first_not_of("> "));
    column.width = heading.size();
    column.word = longest_word(heading);
    column.heading = std::move(heading);
    columns_.push_back(std::move(column));
  }
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells)
    cell = manifest::printable(cell);  // escaped now, so that its width is that of the printed text
  for (std::size_t i = 0; i < cells.size(); ++i) {
    columns_[i].width = std::max(columns_[i].width, cells[i].size());
    columns_[i].word = std::max(columns_[i].word, longest_word(cells[i]));
  }
  rows_.push_back(std::move(cells));
}

std::string Table::take_common_last() {
  std::string common;
  for (const auto& cells : rows_) {
    if (!common.empty() && !cells.back().empty() && cells.back() != common) return {};
    if (common.empty()) common = cells.back();
  }
  if (common.empty()) return {};
  columns_.pop_back();
  for (auto& cells : rows_) cells.pop_back();
  return common;
}

std::vector<std::size_t> Table::fitted(int indent, std::size_t width) const {
  std::vector<std::size_t> widths, kept, least;
  std::size_t line = static_cast<std::size_t>(indent) + 2 * (columns_.size() - 1);
  for (const Column& column : columns_) {
    widths.push_back(column.width);
    line += column.width;
    kept.push_back(column.right ? column.width : std::clamp(column.word, least_width, longest_kept));
    least.push_back(column.right ? column.width : least_width);
  }
  if (width == 0 || line <= width) return widths;
  narrow(widths, kept, line, width);  // no word is cut where that suffices
  narrow(widths, least, line, width);
  return widths;
}

void Table::narrow(std::vector<std::size_t>& widths, const std::vector<std::size_t>& least, std::size_t& line,
                   std::size_t width) {
  while (line > width) {
    std::size_t widest = widths.size(), next = 0;  // the widest column, and the width of the one after it
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (widths[i] <= least[i]) continue;
      if (widest == widths.size() || widths[i] > widths[widest]) {
        if (widest < widths.size()) next = std::max(next, widths[widest]);
        widest = i;
      } else {
        next = std::max(next, widths[i]);
      }
    }
    if (widest == widths.size()) return;
    const std::size_t wanted = widths[widest] - std::min(widths[widest] - least[widest], line - width);
    const std::size_t narrower = std::max(wanted, std::min(next, widths[widest] - 1));
    line -= widths[widest] - narrower;
    widths[widest] = narrower;
  }
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
  if (width == 0) return std::string(text);
  std::string all;
  const std::string whole = with_whole_paragraphs(text);
  for (std::string_view rest = whole; !rest.empty();) append_help_line(all, next_line(rest), width);
  return all;
}

}  // namespace kiln::cli

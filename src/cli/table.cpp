#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "manifest/text.hpp"

namespace kiln::cli {

namespace {

constexpr std::size_t longest_kept = 28;  // columns of a word that a table does not cut

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

/// Splits a command at its spaces, but not in quotes, and keeps an option with the value after it.
std::vector<std::string> parts_of(std::string_view command) {
  std::vector<std::string> words{""};
  char quote = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char each = command[i];
    if (each == ' ' && quote == 0) {
      words.emplace_back();
      continue;
    }
    words.back() += each;
    if (each == '\\' && quote == 0 && i + 1 < command.size())
      words.back() += command[++i];
    else if (quote == 0 && (each == '\'' || each == '"'))
      quote = each;
    else if (each == quote)
      quote = 0;
  }
  std::vector<std::string> parts;
  for (const std::string& each : words) {
    const bool is_value = !parts.empty() && parts.back().starts_with('-') && !each.starts_with('-') &&
                          parts.back().find(' ') == std::string::npos;
    if (is_value)
      parts.back() += " " + each;
    else
      parts.push_back(each);
  }
  return parts;
}

/// Appends a line of help. What it says in its second column goes on there, or below where little room is left for it.
void append_help_line(std::string& all, std::string_view line, std::size_t width) {
  constexpr std::size_t least = 30, below = 6;  // columns that a remark needs, and its indent below an example
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = std::min(line.find("  ", first), line.size());
  const bool alone = gap == line.size(), is_command = line.substr(first).starts_with("kiln ");
  if (line.size() <= width || (alone && is_command)) {
    all += line.size() <= width ? std::string(line) + '\n' : wrapped_command(line.substr(first), width);
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

/// Narrows the widest columns to `least`, one after another, until `line` fits `width`.
void narrow(std::vector<std::size_t>& widths, const std::vector<std::size_t>& least, std::size_t& line,
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

/// Appends the text in lines of `width` at most, each after `indent` spaces.
void append_indented(std::string& all, std::string_view text, std::size_t indent, std::size_t width) {
  constexpr std::size_t least = 12;  // columns of text
  for (const std::string& each : wrapped(text, std::max(width, indent + least) - indent))
    all.append(indent, ' ').append(each) += '\n';
}

/// Returns whether a line stands alone: a blank or indented one, or an item of a list.
bool is_apart(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.starts_with("- ") || line.starts_with("* ");
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

std::vector<std::size_t> Table::fitted(std::size_t indent, std::size_t width) const {
  std::vector<std::size_t> widths, least;
  std::size_t line = indent + 2 * (columns_.size() - 1);
  for (const Column& column : columns_) {
    widths.push_back(column.width);
    line += column.width;
    least.push_back(column.right ? column.width : std::min(column.word, longest_kept));
  }
  if (width == 0 || line <= width) return widths;
  narrow(widths, least, line, width);
  if (line > width)
    widths.clear();
  else
    balance(widths, least);
  return widths;
}

std::size_t Table::lines_at(const std::vector<std::size_t>& widths) const {
  std::size_t lines = 0;
  for (const auto& cells : rows_) {
    std::size_t most = 1;
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (!columns_[i].right && cells[i].size() > widths[i]) most = std::max(most, wrapped(cells[i], widths[i]).size());
    lines += most;
  }
  return lines;
}

void Table::balance(std::vector<std::size_t>& widths, const std::vector<std::size_t>& least) const {
  constexpr std::size_t most_rows = 60, most_moved = 10;  // with more rows the time to try them would be noticed
  if (rows_.size() > most_rows) return;
  for (std::size_t lines = lines_at(widths);;) {
    std::vector<std::size_t> best = widths;
    for (std::size_t from = 0; from < widths.size(); ++from)
      for (std::size_t to = 0; to < widths.size(); ++to)
        for (std::size_t step = 1; step <= most_moved; ++step) {
          if (from == to || columns_[from].right || columns_[to].right || widths[from] < least[from] + step) continue;
          std::vector<std::size_t> moved = widths;
          moved[from] -= step;
          moved[to] += step;
          const std::size_t fewer = lines_at(moved);
          if (fewer >= lines) continue;
          lines = fewer;
          best = moved;
        }
    if (best == widths) return;
    widths = best;
  }
}

void Table::append(std::string& text, const std::vector<std::string>& cells, std::size_t indent,
                   const std::vector<std::size_t>& widths) const {
  std::vector<std::vector<std::string>> lines;
  std::size_t most = 1;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    lines.push_back(columns_[i].right ? std::vector{cells[i]} : wrapped(cells[i], widths[i]));
    most = std::max(most, lines.back().size());
  }
  for (std::size_t at = 0; at < most; ++at) {
    std::string line(indent, ' ');
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string_view cell = at < lines[i].size() ? std::string_view(lines[i][at]) : std::string_view();
      if (i > 0) line += "  ";
      line += columns_[i].right ? fmt::format("{:>{}}", cell, widths[i]) : fmt::format("{:<{}}", cell, widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
}

void Table::append_stacked(std::string& text, const std::vector<std::string>& cells, std::size_t indent,
                           std::size_t width) const {
  std::string rest;
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const std::string& heading = columns_[i].heading;
    if (!cells[i].empty())
      rest += fmt::format("{}{}{}{}", rest.empty() ? "" : ", ", heading, heading.empty() ? "" : " ", cells[i]);
  }
  append_indented(text, cells.front(), indent, width);
  if (!rest.empty()) append_indented(text, rest, indent + 4, width);
}

std::string Table::text(int indent_columns, std::size_t width) const {
  const auto indent = static_cast<std::size_t>(indent_columns);
  const std::vector<std::size_t> widths = fitted(indent, width);
  std::string text;
  if (widths.empty()) {
    for (const auto& cells : rows_) append_stacked(text, cells, indent, width);
    return text;
  }
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  if (std::any_of(headings.begin(), headings.end(), [](const std::string& heading) { return !heading.empty(); }))
    append(text, headings, indent, widths);
  for (const auto& cells : rows_) append(text, cells, indent, widths);
  return text;
}

std::size_t between_characters(std::string_view text, std::size_t at) {
  const auto is_within = [text](std::size_t place) {
    return place < text.size() && (static_cast<unsigned char>(text[place]) & 0xC0U) == 0x80U;
  };
  std::size_t place = at;
  while (place > 0 && is_within(place)) --place;
  if (place == 0)
    for (place = at; is_within(place);) ++place;
  return place;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (width > 0 && text.size() > width) {
    std::size_t end = text.find_last_of(' ', width), next = end + 1;
    if (end == std::string_view::npos || end == 0) {
      const std::size_t mark = text.find_last_of(",/", width - 1);
      end = next = mark == std::string_view::npos ? between_characters(text, width) : mark + 1;
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(next, text.size()));
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  if (lines.empty() || !text.empty()) lines.emplace_back(text);
  return lines;
}

std::string wrapped_text(std::string_view text, std::size_t hanging, std::size_t width) {
  if (width == 0) return std::string(text);
  std::string all;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const std::string first = wrapped(line, width).front();
    all.append(first) += '\n';
    const std::string_view rest = line.substr(std::min(first.size(), line.size()));
    const std::size_t begin = rest.find_first_not_of(' ');
    if (begin != std::string_view::npos) append_indented(all, rest.substr(begin), hanging, width);
  }
  return all;
}

std::string reflowed(std::string_view text, std::size_t width) {
  if (width == 0) return std::string(text);
  constexpr std::size_t widest = 120;  // columns that are read with ease
  std::size_t longest = 0;
  for (std::string_view rest = text; !rest.empty();) longest = std::max(longest, next_line(rest).size());
  std::string joined;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const bool is_short = 10 * line.size() < 7 * longest && (line.ends_with('.') || line.ends_with(':'));
    std::string_view rest = text;
    const bool ends = is_short || is_apart(line) || text.empty() || is_apart(next_line(rest));
    joined.append(line) += ends ? '\n' : ' ';
  }
  std::string all;
  for (std::string_view rest = joined; !rest.empty();) {
    const std::string_view line = next_line(rest);
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (line.empty()) all += '\n';
    all += wrapped_text(line, line.substr(indent).starts_with("- ") ? indent + 2 : indent, std::min(width, widest));
  }
  return all;
}

std::string wrapped_command(std::string_view command, std::size_t width) {
  constexpr std::string_view indent = "  ", deeper = "      ";
  std::string all, line(indent);
  for (const std::string& each : parts_of(command)) {
    constexpr std::size_t for_backslash = 2;
    const bool is_first = line.find_last_not_of(' ') == std::string::npos;
    if (!is_first && width > 0 && line.size() + 1 + each.size() + for_backslash > width) {
      all += line + " \\\n";
      line = deeper;
    } else if (!is_first) {
      line += ' ';
    }
    line += each;
  }
  return all + line + '\n';
}

std::string wrapped_help(std::string_view text, std::size_t width) {
  if (width == 0) return std::string(text);
  std::string all;
  const std::string whole = with_whole_paragraphs(text);
  for (std::string_view rest = whole; !rest.empty();) append_help_line(all, next_line(rest), width);
  return all;
}

}  // namespace kiln::cli

#include "cli/trace_file.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>

#include "cli/input_kind.hpp"
#include "cli/installed.hpp"
#include "cli/problem_set.hpp"
#include "kiln/error.hpp"
#include "manifest/limits.hpp"
#include "manifest/shortage.hpp"
#include "manifest/text_file.hpp"

namespace kiln::cli {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";  // which editors on Windows write

/// std::cin reads through stdin, and takes an error there for the end.
std::vector<TraceEntry> read_standard_input(const manifest::Catalogue& ops) {
  const std::string name = "standard input";
  std::vector<TraceEntry> entries = parse_trace(std::cin, name, ops);
  if (std::ferror(stdin) != 0) throw Error(ErrorKind::io, fmt::format("'{}' cannot be read to its end", name));
  return entries;
}

}  // namespace

std::vector<TraceEntry> parse_trace(std::istream& text, const std::string& name, const manifest::Catalogue& ops) {
  std::vector<TraceEntry> entries;
  std::string line;
  for (int number = 1; manifest::read_line(text, line, manifest::max_trace_line_bytes, name, number); ++number) {
    if (number == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
    std::istringstream words(line.substr(0, line.find('#')));
    std::string op_name;
    if (!(words >> op_name)) continue;
    if (entries.empty() && kind_of(line) == InputKind::workload) refuse_workload(name);
    std::vector<std::string> settings;
    for (std::string word; words >> word;) settings.push_back(word);
    try {
      const manifest::Op& op = find_op(ops, op_name);
      entries.push_back({&op, parse_problem(op, settings, manifest::Zeros::taken), number});
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}:{}: {}", name, number, error.what()));
    }
  }
  return entries;
}

std::vector<TraceEntry> read_trace(const std::string& name, const manifest::Catalogue& ops) {
  if (name == "-") return read_standard_input(ops);
  const std::string path = or_installed(name, "workloads");
  refuse_records(path, "trace");
  refuse_absent(path);
  manifest::check_regular_file(path);
  std::ifstream file(path);
  if (!file)
    throw Error(ErrorKind::io, fmt::format("the trace {} cannot be read: {}", path, manifest::refusal_text(errno)));
  return parse_trace(file, path, ops);
}

}  // namespace kiln::cli

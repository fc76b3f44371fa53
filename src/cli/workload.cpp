#include "cli/workload.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "cli/ops_found.hpp"
#include "cli/problem_set.hpp"
#include "kiln/error.hpp"
#include "spec/text.hpp"

namespace kiln::cli {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  std::vector<WorkloadEntry> entries(const toml::table& file) const {
    std::vector<WorkloadEntry> entries;
    for (const auto& [key, node] : file)
      if (key.str() != "workload")
        fail(node, fmt::format("{} is unknown, expected [[workload]]", spec::quote(key.str())));
    const toml::array* list = file["workload"].as_array();
    if (list == nullptr) fail(file, "expected at least one [[workload]]");
    for (const toml::node& node : *list) {
      const toml::table* table = node.as_table();
      if (table == nullptr) fail(node, "expected a table [[workload]]");
      entries.push_back(entry(*table));
    }
    return entries;
  }

 private:
  [[noreturn]] void fail(const toml::node& node, const std::string& message) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}:{}: {}", name_, node.source().begin.line, message));
  }

  WorkloadEntry entry(const toml::table& table) const {
    WorkloadEntry entry;
    entry.line = static_cast<int>(table.source().begin.line);
    for (const auto& [key, node] : table) {
      if (key.str() == "op") {
        if (!node.is_string()) fail(node, "'op' is no text, expected the name of an op");
        entry.op = node.as_string()->get();
      } else if (key.str() == "axes" || key.str() == "types") {
        if (!node.is_table()) fail(node, fmt::format("'{}' is no table, expected {{ name = value, ... }}", key.str()));
        for (const auto& [name, value] : *node.as_table())
          entry.words.push_back(fmt::format("{}={}", name.str(), items(value)));
      } else {
        fail(node, fmt::format("{} is unknown{}, expected op, axes or types", spec::quote(key.str()),
                               spec::did_you_mean(key.str(), {"op", "axes", "types"})));
      }
    }
    if (entry.op.empty()) fail(table, "a [[workload]] without 'op'");
    return entry;
  }

  std::string items(const toml::node& node) const {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* number = node.as_integer()) return std::to_string(number->get());
    const toml::array* list = node.as_array();
    if (list == nullptr || list->empty())
      fail(node, "expected a size, a word, text such as \"1..4096\", or a list of them");
    std::vector<std::string> parts;
    for (const toml::node& each : *list) {
      if (each.is_array()) fail(each, "expected a size, a word or text, not a list in a list");
      parts.push_back(items(each));
    }
    return fmt::format("{}", fmt::join(parts, ","));
  }

  const std::string& name_;
};

}  // namespace

std::vector<WorkloadEntry> parse_workload(std::string_view text, const std::string& name) {
  try {
    return Reader(name).entries(toml::parse(text, name));
  } catch (const toml::parse_error& error) {
    throw Error(ErrorKind::bad_input, fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
}

std::vector<OpBucket> buckets_of_workload(std::span<const WorkloadEntry> entries, const std::string& name,
                                          std::span<const spec::Op> ops) {
  std::vector<OpBucket> buckets;
  for (const WorkloadEntry& entry : entries) {
    try {
      const spec::Op& op = find_op(ops, entry.op);
      for (const Problem& bucket : buckets_of(op, parse_problem_set(op, entry.words)))
        if (std::none_of(buckets.begin(), buckets.end(),
                         [&](const OpBucket& other) { return other.op == &op && other.bucket == bucket; }))
          buckets.push_back({&op, bucket});
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}:{}: {}", name, entry.line, error.what()));
    }
  }
  return buckets;
}

std::vector<OpBucket> read_workload(const std::string& path, std::span<const spec::Op> ops) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad())
    throw Error(ErrorKind::io, fmt::format("the workload {} cannot be read; is the path right?", path));
  return buckets_of_workload(parse_workload(text.str(), path), path, ops);
}

}  // namespace kiln::cli

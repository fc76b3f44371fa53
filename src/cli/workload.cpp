#include "cli/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/input_kind.hpp"
#include "cli/installed.hpp"
#include "cli/problem_set.hpp"
#include "kiln/error.hpp"
#include "manifest/limits.hpp"
#include "manifest/text.hpp"
#include "manifest/text_file.hpp"
#include "manifest/toml_document.hpp"

namespace kiln::cli {
namespace {

using manifest::TomlEntry;
using manifest::TomlValue;
using Kind = TomlValue::Kind;

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  std::vector<WorkloadEntry> entries(const TomlValue& file) const {
    std::vector<WorkloadEntry> entries;
    for (const TomlEntry& each : file.entries)
      if (each.key != "workload")
        fail(each.value, fmt::format("{} is unknown, expected [[workload]]", manifest::quote(each.key)));
    const TomlValue* list = file.find("workload");
    if (list == nullptr || list->kind != Kind::array) fail(file, "expected at least one [[workload]]");
    for (const TomlValue& each : list->items) {
      if (each.kind != Kind::table) fail(each, "expected a table [[workload]]");
      entries.push_back(entry(each));
    }
    return entries;
  }

 private:
  [[noreturn]] void fail(const TomlValue& value, const std::string& message) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}:{}: {}", name_, value.line.number, message));
  }

  WorkloadEntry entry(const TomlValue& table) const {
    WorkloadEntry entry;
    entry.file = name_;
    entry.line = table.line.number;
    for (const auto& [key, value] : table.entries) {
      if (key == "op") {
        if (value.kind != Kind::text) fail(value, "'op' is no text, expected the name of an op");
        entry.op = value.text;
      } else if (key == "axes" || key == "types") {
        if (value.kind != Kind::table)
          fail(value, fmt::format("'{}' is no table, expected {{ name = value, ... }}", key));
        for (const auto& [name, items] : value.entries)
          entry.words.push_back(fmt::format("{}={}", name, joined(items)));
      } else {
        fail(value, fmt::format("{} is unknown{}, expected op, axes or types, which has choices too",
                                manifest::quote(key), manifest::did_you_mean(key, {"op", "axes", "types"})));
      }
    }
    if (entry.op.empty()) fail(table, "a [[workload]] without 'op'");
    return entry;
  }

  std::string joined(const TomlValue& value) const {
    if (value.kind == Kind::text) return value.text;
    if (value.kind == Kind::integer) return std::to_string(value.integer);
    if (value.kind != Kind::array || value.items.empty())
      fail(value, "expected a size, a word, text such as \"1..4096\", or a list of them");
    std::vector<std::string> parts;
    for (const TomlValue& each : value.items) {
      if (each.kind == Kind::array) fail(each, "expected a size, a word or text, not a list in a list");
      parts.push_back(joined(each));
    }
    return fmt::format("{}", fmt::join(parts, ","));
  }

  const std::string& name_;
};

}  // namespace

std::vector<WorkloadEntry> parse_workload(std::string_view text, const std::string& name) {
  try {
    return Reader(name).entries(manifest::parse_toml(name, text));
  } catch (const Error& error) {
    throw Error(ErrorKind::bad_input, error.what());
  }
}

std::vector<OpBucket> buckets_of_workload(std::span<const WorkloadEntry> entries, const manifest::Catalogue& ops,
                                          int world) {
  std::vector<OpBucket> buckets;
  for (const WorkloadEntry& entry : entries) {
    try {
      const manifest::Op& op = find_op(ops, entry.op);
      for (const Problem& bucket : buckets_of(op, parse_problem_set(op, entry.words, world)))
        if (std::none_of(buckets.begin(), buckets.end(),
                         [&](const OpBucket& other) { return other.op == &op && other.bucket == bucket; }))
          buckets.push_back({&op, bucket});
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}:{}: {}", entry.file, entry.line, error.what()));
    }
  }
  return buckets;
}

namespace {

/// Refuses rows=1..64, of those who give an op and its sizes in place of a file.
void refuse_sizes(const std::string& word) {
  const bool is_setting = manifest::is_identifier(std::string_view(word).substr(0, word.find('=')));
  std::error_code ignored;
  if (word.find('=') == std::string::npos || !is_setting || std::filesystem::exists(word, ignored)) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("{} is no workload file; write the op and its sizes into one, or give them to kiln tune or "
                          "kiln explain",
                          manifest::quote(word)));
}

}  // namespace

std::vector<WorkloadEntry> read_entries(std::span<const std::string> paths) {
  std::vector<WorkloadEntry> entries;
  for (const std::string& name : paths) refuse_sizes(name);
  for (const std::string& name : paths) {
    const std::string path = or_installed(name, "workloads");
    refuse_records(path, "workload");
    refuse_absent(path);
    const std::string text = manifest::read_text_file(path, manifest::max_toml_bytes);
    const InputKind kind = kind_of(text);
    if (kind == InputKind::trace) refuse_trace(path);
    if (kind == InputKind::json) refuse_json(path);
    for (WorkloadEntry& each : parse_workload(text, path)) entries.push_back(std::move(each));
  }
  return entries;
}

std::vector<OpBucket> read_workloads(std::span<const std::string> paths, const manifest::Catalogue& ops, int world) {
  return buckets_of_workload(read_entries(paths), ops, world);
}

}  // namespace kiln::cli

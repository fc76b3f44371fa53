#include "check/compile_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "manifest/text.hpp"

namespace kiln::check {
namespace {

struct Line {
  std::string_view file;
  int number = 1;
  bool is_error = false;
  std::string_view text;
};

/// Reads "FILE(LINE): error: TEXT" or "FILE(LINE): warning #177-D: TEXT".
std::optional<Line> parse_line(std::string_view line) {
  for (const std::string_view word : {"): error", "): warning", "): catastrophic error"}) {
    const std::size_t at = line.find(word);
    const std::size_t open = line.rfind('(', at);
    if (at == std::string_view::npos || open == std::string_view::npos || open == 0) continue;
    Line result;
    result.file = line.substr(0, open);
    const auto [end, error] = std::from_chars(line.data() + open + 1, line.data() + at, result.number);
    if (error != std::errc{} || end != line.data() + at) continue;
    result.is_error = word.find("error") != std::string_view::npos;
    std::string_view text = line.substr(at + word.size());
    const std::size_t colon = text.find(": ");
    result.text = colon == std::string_view::npos ? text : text.substr(colon + 2);
    return result;
  }
  return std::nullopt;
}

std::string_view take_line(std::string_view& log) {
  const std::string_view line = log.substr(0, log.find('\n'));
  log.remove_prefix(std::min(log.size(), line.size() + 1));
  return line;
}

/// The name expression that the line after an error shows.
std::string_view shown_name(std::string_view log) {
  constexpr std::string_view pragma = "#pragma nv_mangled_name ";
  const std::string_view line = log.substr(0, log.find('\n'));
  const std::size_t at = line.find(pragma);
  return at == std::string_view::npos ? std::string_view() : line.substr(at + pragma.size());
}

}  // namespace

bool add_log(std::string_view log, std::span<const NamedPass> passes, const std::string& at, Findings& findings) {
  bool any = false;
  while (!log.empty()) {
    const auto line = parse_line(take_line(log));
    if (!line) continue;
    any = true;
    if (line->file == "__nv_name_map") {
      const std::string_view name = shown_name(log);
      const auto pass =
          std::find_if(passes.begin(), passes.end(), [&](const NamedPass& each) { return each.name == name; });
      if (pass != passes.end())
        findings.add({Severity::error, "kernel_name", pass->file, pass->line,
                      fmt::format("the kernel {}: {}", manifest::quote(name), line->text),
                      "expected a kernel of the source with its template parameters", at});
      continue;
    }
    if (!line->is_error && line->file.starts_with("common/")) continue;  // not the op's to mend
    findings.add({line->is_error ? Severity::error : Severity::warning, line->is_error ? "compile" : "compile_warning",
                  std::string(line->file), line->number, fmt::format("the compiler says: {}", line->text),
                  line->is_error ? "mend the source, or rule the types or the config out" : "mend the source", at});
  }
  return any;
}

}  // namespace kiln::check

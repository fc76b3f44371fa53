#include "check/compile_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "manifest/text.hpp"

namespace kiln::check {
namespace {

struct LogLine {
  std::string_view file;
  int number = 1;
  bool is_error = false;
  std::string_view text;
};

/// Reads "FILE(LINE): error: TEXT" or "FILE(LINE): warning #177-D: TEXT".
std::optional<LogLine> parse_line(std::string_view line) {
  for (const std::string_view word : {"): error", "): warning", "): catastrophic error"}) {
    const std::size_t at = line.find(word);
    const std::size_t open = line.rfind('(', at);
    if (at == std::string_view::npos || open == std::string_view::npos || open == 0) continue;
    LogLine result;
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

std::string remedy_for(const LogLine& line) {
  if (line.text.find("could not open source file") != std::string_view::npos)
    return "set toolkit_headers = true in the manifest for a CUDA toolkit header; others than these are not found";
  return line.is_error ? "mend the source, or rule the types or the config out" : "mend the source";
}

/// The bytes in "ptxas error   : Entry function 'NAME' uses too much shared data (0x64000 bytes, 0x38c00 max)".
struct SharedError {
  std::string_view function;
  std::int64_t bytes = 0, most = 0;
};

std::optional<SharedError> shared_error_in(std::string_view line) {
  constexpr std::string_view before = "Entry function '", middle = "' uses too much shared data (";
  const std::size_t name = line.find(before), numbers = line.find(middle);
  if (name == std::string_view::npos || numbers == std::string_view::npos || numbers < name) return std::nullopt;
  SharedError error;
  error.function = line.substr(name + before.size(), numbers - name - before.size());
  std::string_view rest = line.substr(numbers + middle.size());
  for (std::int64_t* const number : {&error.bytes, &error.most}) {
    const std::size_t digits = rest.find("0x");
    if (digits == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(digits + 2);
    if (std::from_chars(rest.data(), rest.data() + rest.size(), *number, 16).ec != std::errc{}) return std::nullopt;
  }
  return error;
}

/// Whether the mangled name is of a function that the name expression names.
bool is_of(std::string_view mangled, std::string_view expression) {
  std::string_view name = expression.substr(0, expression.find('<'));
  if (const std::size_t scope = name.rfind("::"); scope != std::string_view::npos) name.remove_prefix(scope + 2);
  return mangled.find(fmt::format("{}{}", name.size(), name)) != std::string_view::npos || mangled == name;
}

bool add_shared_error(std::string_view line, std::span<const NamedPass> passes, const std::string& at,
                      Findings& findings) {
  const auto error = shared_error_in(line);
  if (!error) return false;
  const auto pass = std::find_if(passes.begin(), passes.end(),
                                 [&](const NamedPass& each) { return is_of(error->function, each.name); });
  if (pass == passes.end()) return false;
  findings.add(
      {Severity::error, "static_shared", pass->file, pass->line,
       fmt::format("the kernel declares {} bytes of __shared__ memory", error->bytes),
       fmt::format("expected at most {}: make it dynamic, by 'shared' and extern __shared__, or smaller", error->most),
       at});
  return true;
}

}  // namespace

bool add_log(std::string_view log, std::span<const NamedPass> passes, const std::string& at, Findings& findings) {
  bool any = false;
  while (!log.empty()) {
    const std::string_view text = take_line(log);
    if (add_shared_error(text, passes, at, findings)) any = true;
    const auto line = parse_line(text);
    if (!line) continue;
    any = true;
    if (line->file == "__nv_name_map") {
      const std::string_view name = shown_name(log);
      const auto pass =
          std::find_if(passes.begin(), passes.end(), [&](const NamedPass& each) { return each.name == name; });
      if (pass != passes.end() && !findings.has(pass->file, pass->line, "kernel"))  // which says it more briefly
        findings.add({Severity::error, "kernel_name", pass->file, pass->line,
                      fmt::format("the kernel {}: {}", manifest::quote(name), line->text),
                      "expected a kernel of the source with its template parameters", at});
      continue;
    }
    if (!line->is_error && line->file.starts_with("common/")) continue;  // not the op's to mend
    findings.add({line->is_error ? Severity::error : Severity::warning, line->is_error ? "compile" : "compile_warning",
                  std::string(line->file), line->number, fmt::format("the compiler says: {}", line->text),
                  remedy_for(*line), at});
  }
  return any;
}

}  // namespace kiln::check

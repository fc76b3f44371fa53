#include "cli/input_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/next_step.hpp"
#include "kiln/error.hpp"
#include "manifest/text.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {

InputKind kind_of(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(blank)));
    if (line.empty() || line.front() == '#') continue;
    if (line.starts_with("[[workload")) return InputKind::workload;
    if (line.starts_with('{')) return InputKind::json;
    const std::size_t end = line.find_first_of(blank);
    if (end == std::string_view::npos || !manifest::is_identifier(line.substr(0, end))) return InputKind::other;
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(blank, end)));
    const std::size_t equals = line.find('=');  // "rows=137"; of TOML the second word would be "="
    return equals != std::string_view::npos && manifest::is_identifier(line.substr(0, equals)) ? InputKind::trace
                                                                                               : InputKind::other;
  }
  return InputKind::other;
}

void refuse_trace(const std::string& name) {
  const std::string file = shell_word(name);
  throw Error(ErrorKind::bad_input,
              fmt::format("{} is a trace, and a workload is expected; kiln replay {} --dry-run looks a trace up, kiln "
                          "replay {} launches it and tunes what is missing",
                          name, file, file));
}

void refuse_json(const std::string& name) {
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{} is JSON, and a workload is expected; kiln workload --config {} -o FILE.toml writes one of "
                  "a Hugging Face model's config.json",
                  name, shell_word(name)));
}

void refuse_workload(const std::string& name) {
  const std::string file = name == "standard input" ? "FILE" : shell_word(name);
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{} is a workload, and a trace is expected; kiln coverage {} looks a workload up, kiln prewarm "
                  "{} tunes and compiles it",
                  name, file, file));
}

void refuse_records(const std::string& path, std::string_view expected) {
  if (!store::is_text(path) && std::filesystem::path(path).extension() != ".kiln") return;
  const std::string file = shell_word(path);
  throw Error(ErrorKind::bad_input,
              fmt::format("{} is a file of records, and a {} is expected; give it by --base {}{}", path, expected, file,
                          expected == "workload" ? ", or the launches counted in it by --from-histogram " + file : ""));
}

}  // namespace kiln::cli

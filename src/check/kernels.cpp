#include "check/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <span>

#include "jit/source_lexer.hpp"
#include "jit/specialisation.hpp"
#include "kiln/error.hpp"
#include "manifest/text.hpp"

namespace kiln::check {
namespace {

using jit::Token;
using jit::TokenKind;

/// The identifiers of all sources that a compile reads.
struct Identifiers {
  std::set<std::string, std::less<>> all;
  std::vector<std::string> kernels;  // those after __global__
  bool are_pasted = false;           // ## makes others
  bool waits = false;                // for the launch before, by griddepcontrol
  std::set<std::string> files;       // that hold them
  int dynamic_shared = 0;            // the line of an extern __shared__ array in the entry; 0: there is none
};

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  jit::SourceLexer lexer(text);
  for (Token token = lexer.next(); token.kind != TokenKind::end_of_file; token = lexer.next())
    if (token.kind != TokenKind::end_of_line) tokens.push_back(std::move(token));
  return tokens;
}

/// Returns the name of the function that __global__ at `at` declares: the first that stands before a parenthesis, but
/// for __launch_bounds__ and what is like it.
std::string declared_at(std::span<const Token> tokens, std::size_t at) {
  int depth = 0;
  for (std::size_t i = at + 1; i + 1 < tokens.size(); ++i) {
    if (tokens[i].text == "(") ++depth;
    if (tokens[i].text == ")") --depth;
    if (tokens[i].text == ";" || tokens[i].text == "{") break;
    if (depth == 0 && tokens[i].kind == TokenKind::identifier && tokens[i + 1].text == "(" &&
        !tokens[i].text.starts_with("__"))
      return tokens[i].text;
  }
  return {};
}

/// Whether "extern" stands in the declaration around token `at`: extern __align__(16) __shared__ float tile[];
bool is_extern(const std::vector<Token>& tokens, std::size_t at) {
  const auto ends = [&](std::size_t i) {
    return tokens[i].text == ";" || tokens[i].text == "{" || tokens[i].text == "}";
  };
  while (at > 0 && !ends(at - 1)) --at;
  for (; at < tokens.size() && !ends(at); ++at)
    if (tokens[at].text == "extern") return true;
  return false;
}

/// Throws Error(compile_failed) for a source that no compile would read.
Identifiers identifiers_of(const manifest::Op& op, const std::string& source, bool toolkit_headers) {
  jit::Specialisation specialisation;
  specialisation.op = specialisation.label = op.name;
  specialisation.entry = source;
  specialisation.folder = op.folder;
  specialisation.files = op.files;
  specialisation.toolkit_headers = toolkit_headers;
  Identifiers found;
  for (const manifest::SourceFile& file : jit::include_closure(specialisation)) {
    if (file.name.starts_with('<')) continue;  // the toolkit's
    found.files.insert(file.name);
    const std::vector<Token> tokens = tokens_of(file.text);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].text == "##") found.are_pasted = true;
      if (tokens[i].text.find("griddepcontrol.wait") != std::string::npos) found.waits = true;
      if (tokens[i].kind != TokenKind::identifier) continue;
      found.all.insert(tokens[i].text);
      if (tokens[i].text == "__shared__" && file.name == source && found.dynamic_shared == 0 && is_extern(tokens, i))
        found.dynamic_shared = static_cast<int>(tokens[i].line);
      if (tokens[i].text != "__global__") continue;
      if (std::string name = declared_at(tokens, i); !name.empty()) found.kernels.push_back(std::move(name));
    }
  }
  return found;
}

/// "forward" of "kiln::attention::forward<{dtype}>"
std::string base_name(std::string_view kernel) {
  std::string_view name = kernel.substr(0, kernel.find('<'));
  if (const std::size_t space = name.rfind("::"); space != std::string_view::npos) name.remove_prefix(space + 2);
  while (name.ends_with(' ')) name.remove_suffix(1);
  while (name.starts_with(' ')) name.remove_prefix(1);
  return std::string(name);
}

struct Source {
  std::string file;  // the manifest
  std::string name;  // the source
  bool toolkit_headers;
  std::span<const manifest::Pass> passes;
  const manifest::TomlValue* tables;  // of the passes
  manifest::Line line;                // where the manifest names the source
};

/// Adds the files that the compile reads to `read`. Returns false for a source that no compile would read.
bool check_source(const manifest::Op& op, const Source& source, std::set<std::string>& read, Findings& findings) try {
  const Identifiers known = identifiers_of(op, source.name, source.toolkit_headers);
  read.insert(known.files.begin(), known.files.end());
  const auto has_no_shared = [](const manifest::Pass& pass) { return pass.shared.constant_value() == 0; };
  if (known.dynamic_shared != 0 && std::all_of(source.passes.begin(), source.passes.end(), has_no_shared))
    findings.add({Severity::warning,
                  "dynamic_shared",
                  manifest::shown_file(op, source.name),
                  known.dynamic_shared,
                  fmt::format("an extern __shared__ array, and no pass of {} has 'shared'", source.file),
                  "give the pass its bytes: shared = \"...\"",
                  {}});
  const auto line = [&](std::size_t i, std::string_view key) {
    const bool is_there = source.tables != nullptr && i < source.tables->items.size();
    return is_there ? line_at(source.tables->items[i], {key}) : source.passes[i].line;
  };
  for (std::size_t i = 0; i < source.passes.size(); ++i) {
    const manifest::Pass& pass = source.passes[i];
    if (pass.programmatic.constant_value() != 0 && !known.waits)
      findings.add({Severity::error,
                    "programmatic",
                    source.file,
                    line(i, "programmatic"),
                    fmt::format("'programmatic', and {} waits for no launch before", manifest::quote(source.name)),
                    "call wait_for_predecessor() of common/dependent_launch.cuh first, or leave the key out",
                    {}});
    const std::string name = base_name(pass.kernel);
    if (known.are_pasted || name.find('{') != std::string::npos || known.all.contains(name)) continue;
    findings.add(
        {Severity::error,
         "kernel",
         source.file,
         line(i, "kernel"),
         fmt::format("no kernel {} in {}{}", manifest::quote(name), manifest::quote(source.name),
                     manifest::did_you_mean(name, known.kernels)),
         known.kernels.empty() ? "expected a __global__ function there" : "expected " + manifest::one_of(known.kernels),
         {}});
  }
  return true;
} catch (const jit::AmbiguousSource& error) {
  findings.add({Severity::error,
                "source",
                manifest::shown_file(op, source.name),
                error.line,
                error.what(),
                "mend the source",
                {}});
  return false;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::compile_failed) throw;
  findings.add(source_finding(error.what(), source.file, source.line));
  return false;
}

}  // namespace

Finding source_finding(std::string_view text, const std::string& file, const manifest::Line& line) {
  Finding finding{Severity::error, "source", file, line, {}, "mend the source", {}};
  const std::size_t open = text.find('('), close = text.find("): ");
  if (open < close && close != std::string_view::npos) {
    const auto [end, error] = std::from_chars(text.data() + open + 1, text.data() + close, finding.line.number);
    finding.line.part = nullptr;
    if (error == std::errc{}) finding.file = text.substr(0, open);
    text.remove_prefix(close + 3);
  }
  const std::size_t remedy = text.find("; ");
  finding.what = text.substr(0, remedy);
  if (remedy != std::string_view::npos) finding.remedy = text.substr(remedy + 2);
  return finding;
}

void check_kernels(const manifest::Op& op, const Lines& lines, bool is_whole, Findings& findings) {
  std::set<std::string> read;
  for (const manifest::Implementation& each : op.implementations) {
    const manifest::TomlValue& document = lines.of(each);
    if (each.has_kernels())
      is_whole &= check_source(op,
                               {each.file, each.source, each.toolkit_headers, each.passes, document.find("pass"),
                                line_at(document, {"source"})},
                               read, findings);
  }
  const std::string file = manifest::shown_file(op, manifest::op_file);
  const auto table = [&](std::string_view section) { return value_at(lines.op(), {section, "pass"}); };
  is_whole &= check_source(op,
                           {file, op.reference_source, op.reference_toolkit_headers, op.reference, table("reference"),
                            line_at(lines.op(), {"reference", "source"})},
                           read, findings);
  if (op.prepare)
    is_whole &= check_source(op,
                             {file, op.prepare->source, op.prepare->toolkit_headers, op.prepare->passes,
                              table("prepare"), line_at(lines.op(), {"prepare", "source"})},
                             read, findings);
  if (!is_whole) return;
  for (const manifest::SourceFile& each : op.files)
    if (!read.contains(each.name))
      findings.add({Severity::warning,
                    "unread",
                    manifest::shown_file(op, each.name),
                    1,
                    "no manifest names the source, and no source includes it",
                    "name it by 'source', include it, or remove it",
                    {}});
}

}  // namespace kiln::check

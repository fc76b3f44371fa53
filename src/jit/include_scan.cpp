#include "jit/include_scan.hpp"

#include <algorithm>
#include <array>

#include "jit/source_lexer.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::string_view has_include = "__has_include";

constexpr std::array<std::string_view, 3> clocks = {"__DATE__", "__TIME__", "__TIMESTAMP__"};

/// Returns the name that reads a file or the clock and of which `identifier` is a proper prefix, else an empty string.
/// Macros could paste such a name from parts that this scan cannot join, but its beginning must then be an identifier
/// of the source.
std::string_view forbidden_name_begun_by(std::string_view identifier) {
  static constexpr std::array<std::string_view, 5> names = {has_include, "__has_embed", clocks[0], clocks[1],
                                                            clocks[2]};
  for (const std::string_view name : names)
    if (identifier.size() < name.size() && name.starts_with(identifier)) return name;
  return {};
}

Inclusion inclusion(const std::string& header, int line) {
  return {header.substr(1, header.size() - 2), header.front() == '<', line};
}

class TemplateScan {
 public:
  TemplateScan(std::string_view shown, std::string_view text, std::vector<Macro>* macros)
      : shown_(shown), lexer_(text), macros_(macros) {}

  std::vector<Inclusion> run() {
    try {
      while (scan_line()) {
      }
    } catch (const AmbiguousSource& ambiguous) {
      refuse(ambiguous.line, std::string("holds ") + ambiguous.what(),
             "write it so that every compiler reads it alike");
    }
    return std::move(found_);
  }

 private:
  [[noreturn]] void refuse(int line, const std::string& what, const std::string& remedy) const {
    throw Error(ErrorKind::compile_failed,
                shown_ + "(" + std::to_string(line) + "): the source " + what + "; " + remedy + ".");
  }

  /// Returns false at the end of the file.
  bool scan_line() {
    while (lexer_.skip_harmless_line()) {
    }
    Token token = lexer_.next();
    if (token.kind == TokenKind::identifier) refuse_header_units(token);
    if (token.kind == TokenKind::punctuation && token.text == "#") {
      token = lexer_.next();
      if (token.kind == TokenKind::identifier) return scan_directive(token);
    }
    for (; !ends(token); token = lexer_.next()) check_identifier(token);
    return token.kind != TokenKind::end_of_file;
  }

  /// Throws for `import <file>;`, which needs no # and by the standard begins a line, after an optional export.
  void refuse_header_units(const Token& first) const {
    SourceLexer ahead = lexer_;
    const Token word = first.text == "export" ? ahead.next() : first;
    if (word.text == "import") refuse(first.line, "begins a line with import", "only #include is allowed");
  }

  bool scan_directive(const Token& directive) {
    static constexpr std::array<std::string_view, 3> other_readers = {"include_next", "import", "embed"};
    if (std::find(other_readers.begin(), other_readers.end(), directive.text) != other_readers.end()) {
      refuse(directive.line, "uses #" + directive.text, "only #include is allowed");
    }
    if (directive.text == "include") add(directive.line, "#include");
    std::vector<Token> tokens;
    Token token = lexer_.next();
    for (; !ends(token); token = lexer_.next()) {
      scan_directive_token(directive, token, is_operand_of_defined(tokens));
      tokens.push_back(std::move(token));
    }
    if (macros_ != nullptr && directive.text == "define") macros_->push_back(macro_of(tokens));
    return token.kind != TokenKind::end_of_file;
  }

  /// Whether the token after these is.
  static bool is_operand_of_defined(const std::vector<Token>& before) {
    const auto last = [&](std::size_t back) { return before.size() < back ? "" : before[before.size() - back].text; };
    return last(1) == "defined" || (last(2) == "defined" && last(1) == "(");
  }

  /// `defined`: the token is the operand of defined, which reads no file.
  void scan_directive_token(const Token& directive, const Token& token, bool defined) {
    // In a group that is compiled out the front end does not recognise raw strings of directives.
    if (token.spans_lines) {
      refuse(token.line, "has a raw string over several lines in #" + directive.text,
             "end it on the line it begins on");
    }
    if (token.kind != TokenKind::identifier || token.text != has_include) return check_identifier(token);
    if (defined || directive.text == "ifdef" || directive.text == "ifndef") return;
    if (directive.text != "if" && directive.text != "elif") {
      refuse(token.line, "uses __has_include through #" + directive.text, "write it in #if or #elif itself");
    }
    if (lexer_.next().text != "(") {
      refuse(token.line, "uses __has_include without a file name", "write __has_include(\"file\")");
    }
    add(token.line, has_include);
  }

  void add(int line, std::string_view reader) {
    const auto header = lexer_.header_name();
    if (!header) {
      refuse(line, "computes what " + std::string(reader) + " reads by a macro", "name the file itself");
    }
    const Inclusion asked = inclusion(*header, line);
    check_name(asked, reader);
    found_.push_back(asked);
  }

  /// Throws unless the name is a relative path without . and .. parts.
  void check_name(const Inclusion& asked, std::string_view reader) const {
    const std::string_view name = asked.name;
    const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
    if (name.starts_with('/') || name.starts_with('~') || has("\\") || has(":")) {
      refuse(asked.line, "asks " + std::string(reader) + " for the absolute path '" + asked.name + "'",
             "name a file of the op's own folder or a common/ header");
    }
    if (name.empty() || has("//") || ("/" + asked.name + "/").find("/../") != std::string::npos ||
        ("/" + asked.name + "/").find("/./") != std::string::npos) {
      refuse(asked.line, "asks " + std::string(reader) + " for '" + asked.name + "', which may leave the op's folder",
             "name a file of the op's own folder or a common/ header");
    }
  }

  void check_identifier(const Token& token) const {
    if (token.kind != TokenKind::identifier || token.text.front() != '_') return;  // all refused names begin so
    if (std::find(clocks.begin(), clocks.end(), token.text) != clocks.end()) {
      refuse(token.line, "uses " + token.text, "machine code must depend on nothing but its source, so remove it");
    }
    if (const std::string_view name = forbidden_name_begun_by(token.text); !name.empty()) {
      refuse(token.line, "uses the name '" + token.text + "', from which a macro could form " + std::string(name),
             "choose another name");
    }
    if (token.text.starts_with(has_include)) {
      refuse(token.line, "uses " + token.text + " outside #if", "write __has_include in #if or #elif itself");
    }
    if (token.text.starts_with("__has_embed")) refuse(token.line, "uses " + token.text, "no file may be embedded");
  }

  static bool ends(const Token& token) {
    return token.kind == TokenKind::end_of_line || token.kind == TokenKind::end_of_file;
  }

  std::string shown_;
  SourceLexer lexer_;
  std::vector<Macro>* macros_;
  std::vector<Inclusion> found_;
};

}  // namespace

std::vector<Inclusion> scan_template(std::string_view shown, std::string_view text, std::vector<Macro>* macros) {
  return TemplateScan(shown, text, macros).run();
}

HeaderScan scan_toolkit_header(std::string_view text) {
  HeaderScan scan;
  SourceLexer lexer(text);
  std::vector<Token> line;  // without its end
  const auto is_define = [&] { return line.size() > 2 && line[0].text == "#" && line[1].text == "define"; };
  const auto end_line = [&] {
    if (is_define()) scan.macros.push_back(macro_of(std::span(line).subspan(2)));
    line.clear();
  };
  for (;;) {
    try {
      Token token = lexer.next();
      const bool ends_line = token.kind == TokenKind::end_of_line || token.kind == TokenKind::end_of_file;
      if (ends_line) end_line();
      if (token.kind == TokenKind::end_of_file) return scan;
      if (ends_line) continue;
      if (token.kind == TokenKind::identifier && names_callers_place(token.text)) scan.names_callers_place = true;
      line.push_back(std::move(token));
      if (line.size() != 2 || line[0].text != "#" || line[1].text != "include") continue;
      if (const auto header = lexer.header_name()) scan.inclusions.push_back(inclusion(*header, line[1].line));
    } catch (const AmbiguousSource&) {
      const bool was_define = is_define();
      end_line();
      if (was_define) scan.macros.back().stringises = true;
      lexer.skip_line();
    }
  }
}

}  // namespace kiln::jit

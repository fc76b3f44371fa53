#include "jit/macro_scan.hpp"

#include <algorithm>
#include <array>

namespace kiln::jit {
namespace {

constexpr std::array<std::string_view, 6> callers_place_names = {"source_location",     "__builtin_source_location",
                                                                 "__builtin_LINE",      "__builtin_FILE",
                                                                 "__builtin_FILE_NAME", "__builtin_COLUMN"};
constexpr std::array<std::string_view, 7> own_place_names = {
    "assert", "__LINE__", "__FILE__", "__FILE_NAME__", "__BASE_FILE__", "__PRETTY_FUNCTION__", "__FUNCSIG__"};

template <class Holds>
bool any_place_name(Holds holds) noexcept {
  return std::any_of(own_place_names.begin(), own_place_names.end(), holds) ||
         std::any_of(callers_place_names.begin(), callers_place_names.end(), holds);
}

bool is_sharp(const Token& token) noexcept { return token.kind == TokenKind::punctuation && token.text == "#"; }

/// Whether ## may form the name of a place behind `left`. A name that is no parameter stays the beginning of what is
/// formed.
bool may_form_place_behind(const Token& left, const std::vector<std::string>& parameters) {
  if (left.kind != TokenKind::identifier || left.text.starts_with("__VA_")) return true;
  return std::find(parameters.begin(), parameters.end(), left.text) != parameters.end() ||
         any_place_name([&](std::string_view name) { return name.starts_with(left.text); });
}

}  // namespace

bool names_callers_place(std::string_view identifier) noexcept {
  return std::find(callers_place_names.begin(), callers_place_names.end(), identifier) != callers_place_names.end();
}

bool names_its_place(std::string_view identifier) noexcept {
  const char first = identifier.empty() ? '\0' : identifier.front();
  return (first == '_' || first == 'a' || first == 's') &&
         any_place_name([&](std::string_view name) { return name == identifier; });
}

Macro macro_of(std::span<const Token> tokens) {
  Macro macro;
  if (tokens.empty()) return macro;
  macro.name = tokens.front().text;
  tokens = tokens.subspan(1);
  // A body that begins with parentheses is taken for parameters too, which only makes more names parameters.
  std::vector<std::string> parameters;
  if (!tokens.empty() && tokens.front().text == "(")
    for (std::size_t i = 1; i < tokens.size() && tokens[i].text != ")"; ++i) parameters.push_back(tokens[i].text);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind == TokenKind::identifier) macro.names.push_back(tokens[i].text);
    if (!is_sharp(tokens[i])) continue;
    if (i + 1 >= tokens.size() || !is_sharp(tokens[i + 1])) {
      macro.stringises = true;
      continue;
    }
    macro.pastes = true;
    macro.may_form_place = macro.may_form_place || i == 0 || may_form_place_behind(tokens[i - 1], parameters);
    ++i;
  }
  return macro;
}

MacroNames revealing_macros(std::span<const Macro> macros) {
  MacroNames revealing;
  const auto reveals = [&](const std::string& name) { return names_its_place(name) || revealing.contains(name); };
  for (bool is_whole = false; !is_whole;) {
    is_whole = true;
    for (const Macro& each : macros)
      if (each.stringises || each.pastes || std::any_of(each.names.begin(), each.names.end(), reveals))
        is_whole = !revealing.insert(each.name).second && is_whole;
  }
  return revealing;
}

}  // namespace kiln::jit

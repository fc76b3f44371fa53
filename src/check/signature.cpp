#include "check/signature.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

namespace kiln::check {
namespace {

constexpr std::array<std::string_view, 13> integers = {
    "bool",         "char", "signed char",   "unsigned char", "short",   "unsigned short",    "int",
    "unsigned int", "long", "unsigned long", "long long",     "wchar_t", "unsigned long long"};
constexpr std::array<std::string_view, 2> reals = {"float", "double"};

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  text = trimmed(text);
  return true;
}

/// The element type, without const, and whether it was const.
void set_element(ParameterType& type, std::string_view element) {
  element = trimmed(element);
  while (take_suffix(element, " volatile")) {
  }
  type.points_to_const = take_suffix(element, " const");
  type.element = element;
}

/// Cuts a list at its commas, but not inside brackets of any kind. Returns nothing where the brackets do not match.
std::optional<std::vector<std::string_view>> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  std::string open;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if (c == '(' || c == '[' || c == '{' || c == '<') open += c;
    if (c == ')' || c == ']' || c == '}' || c == '>') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : '<';
      if (open.empty() || open.back() != wanted) return std::nullopt;
      open.pop_back();
    }
    if (c != ',' || !open.empty()) continue;
    parts.push_back(trimmed(list.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (!open.empty()) return std::nullopt;
  if (const std::string_view last = trimmed(list.substr(begin)); !last.empty()) parts.push_back(last);
  return parts;
}

/// "float*, int" of "void kernel<float, 2>(float*, int)"
std::optional<std::string_view> parameters_in(std::string_view function) {
  if (!function.ends_with(')')) return std::nullopt;
  int depth = 0;
  for (std::size_t i = function.size(); i-- > 0;) {
    if (function[i] == ')') ++depth;
    if (function[i] == '(' && --depth == 0) return function.substr(i + 1, function.size() - i - 2);
  }
  return std::nullopt;
}

}  // namespace

ParameterType parse_type(std::string_view text) {
  text = trimmed(text);
  ParameterType type;
  type.text = text;
  constexpr std::string_view view = "kiln::view<";
  std::string_view rest = text;
  if (take_suffix(rest, "*")) {
    type.kind = TypeKind::pointer;
    set_element(type, rest);
  } else if (text.starts_with(view) && text.ends_with('>')) {
    const auto parts = parts_of(text.substr(view.size(), text.size() - view.size() - 1));
    if (!parts || parts->size() != 2) return type;
    type.kind = TypeKind::view;
    set_element(type, parts->front());
  } else if (std::find(integers.begin(), integers.end(), text) != integers.end()) {
    type.kind = TypeKind::integer;
  } else if (std::find(reals.begin(), reals.end(), text) != reals.end()) {
    type.kind = TypeKind::real;
  }
  return type;
}

std::optional<std::vector<ParameterType>> parameter_types(const std::string& lowered_name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(lowered_name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || readable == nullptr) return std::nullopt;
  const auto list = parameters_in(readable.get());
  if (!list) return std::nullopt;
  const auto parts = parts_of(*list);
  if (!parts) return std::nullopt;
  std::vector<ParameterType> types;
  for (const std::string_view each : *parts)
    if (each != "void") types.push_back(parse_type(each));
  return types;
}

}  // namespace kiln::check

#include "module/kernel_name.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace fake_cuda {
namespace {

/// The parts of a list that commas separate outside brackets.
std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '<' || c == '(') ++depth;
    if (c == '>' || c == ')') --depth;
    if (c != ',' || depth != 0) continue;
    std::string_view part = list.substr(begin, i - begin);
    while (part.starts_with(' ')) part.remove_prefix(1);
    if (!part.empty()) parts.emplace_back(part);
    begin = i + 1;
  }
  return parts;
}

/// Where the bracket that `text` ends with was opened.
std::size_t opening(std::string_view text, char open, char close) {
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == close) ++depth;
    if (text[i] == open && --depth == 0) return i;
  }
  return std::string_view::npos;
}

}  // namespace

KernelName parse_kernel_name(const std::string& lowered) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(lowered.c_str(), nullptr, nullptr, &status), std::free);
  KernelName name;
  if (status != 0) {
    name.full = name.base = lowered;
    return name;
  }
  std::string_view text = demangled.get();
  if (const std::size_t open = opening(text, '(', ')'); open != std::string_view::npos) {
    name.parameters = split_list(text.substr(open + 1, text.size() - open - 2));
    text = text.substr(0, open);
  }
  if (text.starts_with("void ")) text.remove_prefix(5);  // templates carry their return type
  name.full = text;
  if (text.ends_with('>')) {
    const std::size_t open = opening(text, '<', '>');
    name.arguments = split_list(text.substr(open + 1, text.size() - open - 2));
    text = text.substr(0, open);
  }
  const std::size_t scope = text.rfind("::");
  name.base = scope == std::string_view::npos ? text : text.substr(scope + 2);
  return name;
}

}  // namespace fake_cuda

#include "manifest/kernel_name.hpp"

#include <fmt/format.h>

#include "kiln/error.hpp"
#include "manifest/op.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

[[noreturn]] void fail(std::string_view name, std::string_view found, std::string_view expected) {
  throw Error(ErrorKind::bad_expression,
              fmt::format("found {} in the kernel name {}, expected {}", found, quote(name), expected));
}

std::string checked_literal(std::string_view name, std::string_view literal) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:<>, ";
  const std::size_t stranger = literal.find_first_not_of(allowed);
  if (stranger != std::string_view::npos) {
    fail(name, quote(literal.substr(stranger, 1)), "names, '::', '<', '>', ',' and {placeholders}");
  }
  return std::string(literal);
}

std::string fill(const Expression& placeholder, const Symbols& symbols, std::span<const std::int64_t> frame) {
  const Value value = placeholder.evaluate(frame);
  if (!value.ok()) {
    throw Error(ErrorKind::bad_expression, fmt::format("found {} in the placeholder {}, expected a value",
                                                       to_string(value.status), quote(placeholder.text())));
  }
  const auto slot = symbols.find(placeholder.text());
  if (!slot || symbols[*slot].words.empty()) return std::to_string(value.number);
  const Symbols::Symbol& symbol = symbols[*slot];
  const std::string& word = symbol.words.at(static_cast<std::size_t>(value.number));
  if (symbol.sizes.empty()) return word;
  const auto type = parse_dtype(word);
  return std::string(type ? cpp_name(*type) : word);
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

KernelName parse_kernel_name(std::string_view text, const Symbols& symbols) {
  constexpr std::size_t most = 1000;
  if (text.size() > most) fail(text, fmt::format("{} characters", text.size()), fmt::format("at most {}", most));
  KernelName name;
  std::size_t at = 0;
  for (std::size_t open = text.find('{'); open != std::string_view::npos; open = text.find('{', at)) {
    const std::size_t close = text.find('}', open);
    if (close == std::string_view::npos) fail(text, "'{' without '}'", "a placeholder in braces");
    name.literals.push_back(checked_literal(text, text.substr(at, open - at)));
    name.placeholders.push_back(Expression::parse(trimmed(text.substr(open + 1, close - open - 1)), symbols));
    at = close + 1;
  }
  name.literals.push_back(checked_literal(text, text.substr(at)));
  const std::string_view base =
      std::string_view(name.literals.front()).substr(0, name.literals.front().find_first_of("<:, "));
  if (!is_identifier(base)) fail(text, quote(base), "the name of a kernel first");
  return name;
}

std::string fill_kernel_name(const KernelName& name, const Symbols& symbols, std::span<const std::int64_t> frame) {
  std::string result = name.literals.front();
  for (std::size_t i = 0; i < name.placeholders.size(); ++i) {
    result += fill(name.placeholders[i], symbols, frame) + name.literals[i + 1];
  }
  return result;
}

std::vector<std::string> name_expressions(const Op& op, std::span<const Pass> passes, const Symbols& symbols,
                                          std::span<const std::int64_t> frame) {
  std::vector<std::string> names;
  for (const Pass& pass : passes) {
    if (pass.when && !pass.when->evaluate(frame).truth()) {
      names.emplace_back();
      continue;
    }
    try {
      names.push_back(fill_kernel_name(pass.name, symbols, frame));
    } catch (const Error& error) {
      throw Error(ErrorKind::bad_manifest,
                  fmt::format("op '{}', pass at line {}: {}", op.name, pass.line.number, error.what()));
    }
  }
  return names;
}

}  // namespace kiln::manifest

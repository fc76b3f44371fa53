#include "signature.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace kiln_torch {
namespace {

constexpr std::size_t most_tokens = 32;

std::size_t index_of(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  names.push_back(name);
  return names.size() - 1;
}

Token token(Signature& signature, const std::string& text) {
  static const std::pair<const char*, Token::Kind> operations[] = {{"+", Token::Kind::add},
                                                                   {"-", Token::Kind::subtract},
                                                                   {"*", Token::Kind::multiply},
                                                                   {"/", Token::Kind::divide},
                                                                   {"min", Token::Kind::minimum},
                                                                   {"max", Token::Kind::maximum},
                                                                   {"ceil_div", Token::Kind::ceil_div},
                                                                   {"round_up", Token::Kind::round_up}};
  for (const auto& [name, kind] : operations)
    if (text == name) return {kind, 0};
  if (text.find_first_not_of("0123456789") == std::string::npos) return {Token::Kind::number, std::stoll(text)};
  return {Token::Kind::axis, static_cast<std::int64_t>(index_of(signature.axes, text))};
}

void read_argument(Signature& signature, const std::string& kind, std::istringstream& line) {
  Argument made{};
  line >> made.name;
  if (kind == "tensor") {
    made.kind = Argument::Kind::tensor;
    line >> made.is_optional >> made.rank >> made.is_flat >> made.is_dense >> made.is_mutated;
  } else if (kind == "axis" || kind == "length") {
    made.kind = kind == "axis" ? Argument::Kind::axis : Argument::Kind::length;
    if (kind == "axis") index_of(signature.axes, made.name);
  } else {
    made.kind = kind == "real" ? Argument::Kind::real : Argument::Kind::integer;
    line >> made.is_optional;
  }
  signature.arguments.push_back(std::move(made));
}

void read_output(Signature& signature, std::istringstream& line) {
  Output made{};
  line >> made.name >> made.rank >> made.is_flat >> made.like;
  for (kiln_dtype& each : made.types) line >> each;
  signature.outputs.push_back(std::move(made));
}

void read_dim(Signature& signature, std::istringstream& line) {
  std::vector<Token> tokens;
  for (std::string text; line >> text;) tokens.push_back(token(signature, text));
  line.clear();
  if (tokens.size() > most_tokens) line.setstate(std::ios::failbit);
  signature.outputs.back().dims.push_back(std::move(tokens));
}

void read_line(Signature& signature, const std::string& kind, std::istringstream& line) {
  if (kind == "op") {
    line >> signature.op;
  } else if (kind == "folder") {
    std::getline(line >> std::ws, signature.folder);
  } else if (kind == "word") {
    line >> signature.words.emplace_back().first >> signature.words.back().second;
  } else if (kind == "solve") {
    std::string axis;
    Solve made{};
    line >> axis >> made.argument >> made.dimension >> made.times >> made.plus >> made.over >> made.is_given;
    made.axis = index_of(signature.axes, axis);
    signature.solves.push_back(made);
  } else if (kind == "size") {
    Size made{};
    line >> made.value >> made.argument >> made.dimension;
    signature.sizes.push_back(std::move(made));
  } else if (kind == "output") {
    read_output(signature, line);
  } else if (kind == "dim") {
    read_dim(signature, line);
  } else {
    read_argument(signature, kind, line);
  }
}

std::int64_t apply(Token::Kind kind, std::int64_t a, std::int64_t b) {
  switch (kind) {
    case Token::Kind::add: return a + b;
    case Token::Kind::subtract: return a - b;
    case Token::Kind::multiply: return a * b;
    case Token::Kind::divide: return b == 0 ? 0 : a / b;
    case Token::Kind::ceil_div: return b == 0 ? 0 : (a + b - 1) / b;
    case Token::Kind::round_up: return b == 0 ? 0 : (a + b - 1) / b * b;
    case Token::Kind::minimum: return std::min(a, b);
    case Token::Kind::maximum: return std::max(a, b);
    case Token::Kind::number:
    case Token::Kind::axis: break;
  }
  return 0;
}

}  // namespace

Signature parse_signature(const std::string& text) {
  Signature made;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    read_line(made, kind, words);
    if (words.fail()) throw std::runtime_error("a signature of kiln.torch has a line that is none: '" + line + "'");
  }
  return made;
}

std::int64_t evaluate(const std::vector<Token>& tokens, std::span<const std::int64_t> axes) {
  const auto value = [axes](const Token& each) {
    return each.kind == Token::Kind::number ? each.number : axes[static_cast<std::size_t>(each.number)];
  };
  if (tokens.size() == 1) return value(tokens.front());
  std::array<std::int64_t, most_tokens> stack{};
  std::size_t height = 0;
  for (const Token& each : tokens) {
    if (each.kind == Token::Kind::number || each.kind == Token::Kind::axis) {
      stack[height++] = value(each);
    } else if (height >= 2) {
      stack[height - 2] = apply(each.kind, stack[height - 2], stack[height - 1]);
      --height;
    }
  }
  return stack[0];
}

}  // namespace kiln_torch

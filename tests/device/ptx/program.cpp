#include "ptx/program.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include "emulator/fault.hpp"
#include "ptx/instructions.hpp"

namespace emulator {
namespace {

constexpr const char* space = " \t\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(space);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(space) + 1 - first);
}

/// The text up to the first of `ends`, which is taken off `text` with it.
std::string_view cut(std::string_view& text, const char* ends) {
  const std::size_t end = std::min(text.find_first_of(ends), text.size());
  const std::string_view before = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return trimmed(before);
}

std::vector<std::string> split(std::string_view text, const char* separators) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = cut(text, separators);
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

std::int64_t number(const std::string& text) {
  if (text.starts_with("0f") || text.starts_with("0F"))
    return static_cast<std::int64_t>(std::stoul(text.substr(2), nullptr, 16));
  return std::stoll(text, nullptr, 0);
}

/// Reads statement after statement.
class Reader {
 public:
  explicit Reader(Program& program) : program_(program) {}

  void statement(std::string_view text) {
    text = trimmed(text);
    while (!text.empty() && (text.front() == '{' || text.front() == '}')) text = trimmed(text.substr(1));  // a scope
    const std::size_t colon = text.find(':');
    if (colon != std::string_view::npos && text.find_first_of(" \t\n.,") > colon) {
      labels_[std::string(trimmed(text.substr(0, colon)))] = program_.instructions.size();
      text = trimmed(text.substr(colon + 1));
    }
    if (text.empty()) return;
    if (text.starts_with(".reg")) return declare(text);
    instruction(text);
  }

  void resolve_branches() {
    for (Instruction& each : program_.instructions) {
      if (each.opcode != "bra") continue;
      each.target = labels_.at(branches_.front());
      branches_.erase(branches_.begin());
    }
  }

 private:
  void declare(std::string_view text) {
    cut(text, space);  // .reg
    text = trimmed(text);
    cut(text, space);  // the type
    for (const std::string& name : split(text, ", \n")) locals_[name] = program_.locals++;
  }

  void instruction(std::string_view text) {
    Instruction made;
    if (text.front() == '@') {
      std::string_view guard = cut(text, space).substr(1);
      made.guard_negated = guard.starts_with('!');
      if (made.guard_negated) guard.remove_prefix(1);
      made.guard = static_cast<int>(local(std::string(guard)));
      text = trimmed(text);
    }
    made.opcode = cut(text, space);
    made.parts = split(made.opcode, ".");
    if (made.opcode == "bra") {
      branches_.emplace_back(trimmed(text));
    } else {
      made.handler = handler_of(made.opcode);
      operands(text, made);
    }
    program_.instructions.push_back(std::move(made));
  }

  void operands(std::string_view text, Instruction& to) {
    int depth = 0;
    std::string each;
    const auto close = [&] {
      std::vector<Token> tokens;
      for (const std::string& word : split(each, " ,|\n\t")) tokens.push_back(token(word));
      if (!tokens.empty()) to.operands.push_back(std::move(tokens));
      each.clear();
    };
    for (const char c : text) {
      depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
      if (c == ',' && depth == 0) {
        close();
      } else {
        each += c == '[' || c == '{' || c == ']' || c == '}' ? ' ' : c;
      }
    }
    close();
  }

  Token token(std::string word) {
    std::int64_t added = 0;
    if (const std::size_t plus = word.find('+'); plus != std::string::npos) {
      added = number(word.substr(plus + 1));
      word.resize(plus);
    }
    if (word == "_") return {Token::Kind::nothing, 0, 0, {}};
    if (word[0] == '%' && std::isdigit(word[1]) != 0)
      return {Token::Kind::operand, static_cast<unsigned>(std::stoul(word.substr(1))), added, {}};
    if (word[0] == '%') return {Token::Kind::special, 0, 0, word.substr(1)};
    if (std::isdigit(word[0]) != 0 || word[0] == '-') return {Token::Kind::number, 0, number(word), {}};
    return {Token::Kind::local, local(word), added, {}};
  }

  unsigned local(const std::string& name) {
    const auto found = locals_.find(name);
    if (found == locals_.end()) fault("the emulator's PTX knows no register {}", name);
    return found->second;
  }

  Program& program_;
  std::map<std::string, unsigned> locals_;
  std::map<std::string, std::size_t> labels_;
  std::vector<std::string> branches_;  // labels, in the order of their instructions
};

}  // namespace

bool Instruction::has(std::string_view part) const {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

Program::Program(const std::string& text) {
  Reader reader(*this);
  std::string_view rest = text;
  while (!rest.empty()) reader.statement(cut(rest, ";"));
  reader.resolve_branches();
}

}  // namespace emulator

// Text to tree, by recursive descent along the grammar in expression.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "kiln/error.hpp"
#include "manifest/expression_tree.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

constexpr std::size_t max_text = 4096;
constexpr int max_nesting = 64;

struct Function {
  std::string_view name;
  Operation operation;
  int least, most;
};
constexpr std::array functions = {
    Function{"min", Operation::minimum, 2, 64},        Function{"max", Operation::maximum, 2, 64},
    Function{"ceil_div", Operation::ceil_div, 2, 2},   Function{"round_up", Operation::round_up, 2, 2},
    Function{"pow2_ceil", Operation::pow2_ceil, 1, 1}, Function{"log2", Operation::log2, 1, 1},
    Function{"is_pow2", Operation::is_pow2, 1, 1},     Function{"abs", Operation::absolute, 1, 1},
};

struct Operator {
  std::string_view sign;
  Operation operation;
};
constexpr std::array equalities = {Operator{"==", Operation::equal}, Operator{"!=", Operation::not_equal}};
constexpr std::array comparisons = {Operator{"<=", Operation::less_equal}, Operator{">=", Operation::greater_equal},
                                    Operator{"<", Operation::less}, Operator{">", Operation::greater}};
constexpr std::array sums = {Operator{"+", Operation::add}, Operator{"-", Operation::subtract}};
constexpr std::array products = {Operator{"*", Operation::multiply}, Operator{"/", Operation::divide},
                                 Operator{"%", Operation::remainder}};

// A parsed primary: a tree, which is a plain name when named >= 0, or a quoted word, which has no tree.
struct Operand {
  Operand(Tree operand, int slot = -1) : tree(std::move(operand)), named(slot) {}
  Operand(std::string_view quoted_word, std::size_t column) : word(quoted_word), at(column) {}
  [[nodiscard]] bool is_word() const { return word.data() != nullptr; }

  Tree tree;
  int named = -1;
  std::string_view word;
  std::size_t at = 0;
};

class Parser {
 public:
  Parser(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  Tree parse() {
    Tree tree = ternary();
    skip_space();
    if (at_ < text_.size()) fail(at_, here(), operator_instead());
    return tree;
  }

 private:
  Tree ternary() {
    const Nesting nesting(*this);
    Tree condition = logic_or();
    if (!take("?")) return condition;
    Tree yes = ternary();
    if (!take(":")) fail(at_, here(), "':' of the conditional");
    return make_node(Operation::choose, {std::move(condition), std::move(yes), ternary()});
  }

  Tree logic_or() {
    Tree left = logic_and();
    while (take("||")) left = make_node(Operation::logical_or, {left, logic_and()});
    return left;
  }

  Tree logic_and() {
    Tree left = number(equal());
    while (take("&&")) left = make_node(Operation::logical_and, {left, number(equal())});
    return left;
  }

  Operand equal() {
    Operand left = compare();
    while (const Operator* found = take_one(equalities)) {
      Operand right = compare();
      if (right.is_word()) right.tree = index_of(right, left);
      if (left.is_word()) left.tree = index_of(left, right);
      left = make_node(found->operation, {left.tree, right.tree});
      refuse_another(equalities);
    }
    return left;
  }

  Operand compare() {
    Operand left = sum();
    while (const Operator* found = take_one(comparisons)) {
      left = make_node(found->operation, {number(left), number(sum())});
      refuse_another(comparisons);
    }
    return left;
  }

  /// C compares the result of the first, 0 or 1, with what follows: there "1 < n < 4" is true of every n.
  template <typename Operators>
  void refuse_another(const Operators& operators) {
    skip_space();
    const std::size_t begin = at_;
    if (const Operator* second = take_one(operators))
      fail(begin, fmt::format("a second comparison, '{}', in a row", second->sign),
           "'&&' between two comparisons, as in 1 < n && n < 4, or parentheses around one");
  }

  Operand sum() {
    return chain(sums, [this] { return product(); });
  }
  Operand product() {
    return chain(products, [this] { return unary(); });
  }

  template <typename Operators, typename Next>
  Operand chain(const Operators& operators, Next next) {
    Operand left = next();
    while (const Operator* found = take_one(operators))
      left = make_node(found->operation, {number(left), number(next())});
    return left;
  }

  Operand unary() {
    const Nesting nesting(*this);
    skip_space();
    const bool inequality = text_.substr(at_).starts_with("!=");
    if (!inequality && take("!")) return make_node(Operation::logical_not, {number(unary())});
    if (take("-")) return make_node(Operation::negate, {number(unary())});
    return primary();
  }

  Operand primary() {
    skip_space();
    const std::size_t begin = at_;
    if (take("(")) {
      Tree inner = ternary();
      close();
      return inner;
    }
    if (take("\"")) return word(begin);
    if (at_ < text_.size() && is_digit(text_[at_])) return integer();
    const std::string_view name = identifier();
    if (name.empty()) fail(begin, here(), operand_instead());
    if (take("(")) return call(name, begin);
    if (const auto slot = symbols_.find(name)) return {make_slot(*slot), *slot};
    if (const Expression* term = symbols_.find_term(name)) return Operand(term->tree());
    if (const std::string_view sign = sign_for(name); !sign.empty())
      fail(begin, fmt::format("the word {}", quote(name)), fmt::format("'{}'", sign));
    if (is_word(name)) fail(begin, fmt::format("the word {} without quotes", quote(name)), fmt::format("\"{}\"", name));
    fail(begin, "the unknown name " + quote(name) + did_you_mean(name, known_names()), known_list());
  }

  Operand word(std::size_t begin) {
    const std::size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) fail(begin, "a quotation mark", "a second one after it");
    Operand result(text_.substr(at_, end - at_), begin);
    at_ = end + 1;
    return result;
  }

  Tree integer() {
    const std::size_t begin = at_;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    at_ = static_cast<std::size_t>(end - text_.data());
    if (error != std::errc{})
      fail(begin, "the number " + quote(text_.substr(begin, at_ - begin)), "one that 64 bits hold");
    return make_constant(value);
  }

  Tree call(std::string_view name, std::size_t begin) {
    if (name == "sizeof") return size_of();
    const auto* function =
        std::find_if(functions.begin(), functions.end(), [&](const Function& each) { return each.name == name; });
    if (function == functions.end()) {
      fail(begin, "the unknown function " + quote(name) + did_you_mean(name, function_names()),
           one_of(function_names()));
    }
    std::vector<Tree> arguments;
    do {
      arguments.push_back(ternary());
    } while (take(","));
    close();
    const int count = static_cast<int>(arguments.size());
    if (count < function->least || count > function->most) {
      fail(begin, fmt::format("{} with {} argument(s)", name, count),
           function->least == function->most ? std::to_string(function->least) : "two or more, at most 64");
    }
    if (count == 1) return make_node(function->operation, std::move(arguments));
    Tree result = arguments[0];
    for (std::size_t i = 1; i < arguments.size(); ++i) result = make_node(function->operation, {result, arguments[i]});
    return result;
  }

  // sizeof(dtype) becomes a chain of conditionals over the type's index, because programs have no tables.
  Tree size_of() {
    skip_space();
    const std::size_t begin = at_;
    const std::string_view name = identifier();
    const auto slot = symbols_.find(name);
    if (!slot || symbols_[*slot].sizes.empty()) {
      fail(begin, name.empty() ? here() : quote(name), "the name of a type inside sizeof()");
    }
    close();
    const std::vector<std::int64_t>& sizes = symbols_[*slot].sizes;
    Tree result = make_constant(sizes.back());
    for (std::size_t i = sizes.size() - 1; i-- > 0;) {
      if (sizes[i] == sizes.back() && result->operation == Operation::constant) continue;
      Tree is_this = make_node(Operation::equal, {make_slot(*slot), make_constant(static_cast<std::int64_t>(i))});
      result = make_node(Operation::choose, {std::move(is_this), make_constant(sizes[i]), std::move(result)});
    }
    return result;
  }

  Tree index_of(const Operand& word, const Operand& name) const {
    if (name.named < 0 || symbols_[name.named].words.empty()) {
      fail(word.at, "the word " + quote(word.word), "a quoted word only beside the name of a type or a choice");
    }
    const Symbols::Symbol& symbol = symbols_[name.named];
    const auto found = std::find(symbol.words.begin(), symbol.words.end(), word.word);
    if (found == symbol.words.end()) {
      fail(word.at, "the word " + quote(word.word) + did_you_mean(word.word, symbol.words),
           fmt::format("a value of '{}': {}", symbol.name, one_of(symbol.words)));
    }
    return make_constant(found - symbol.words.begin());
  }

  Tree number(const Operand& operand) const {
    if (operand.is_word())
      fail(operand.at, "the word " + quote(operand.word), "a quoted word only on one side of == or !=");
    return operand.tree;
  }

  struct Nesting {
    explicit Nesting(Parser& owner) : parser(owner) {
      if (++parser.nesting_ > 2 * max_nesting) {
        parser.fail(parser.at_, "deeper nesting", fmt::format("at most {} levels", max_nesting));
      }
    }
    ~Nesting() { --parser.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    Parser& parser;
  };

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  bool take(std::string_view sign) {
    skip_space();
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  template <typename Operators>
  const Operator* take_one(const Operators& operators) {
    for (const Operator& each : operators) {
      if (take(each.sign)) return &each;
    }
    return nullptr;
  }

  void close() {
    if (!take(")")) fail(at_, here(), "')'");
  }

  std::string_view identifier() {
    std::size_t end = at_;
    const auto belongs = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (end > at_ && is_digit(c));
    };
    while (end < text_.size() && belongs(text_[end])) ++end;
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end;
    return name;
  }

  /// What an expression has in place of a word of other languages.
  static std::string_view sign_for(std::string_view word) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 7> signs = {
        {{"and", "&&"}, {"or", "||"}, {"not", "!"}, {"true", "1"}, {"false", "0"}, {"True", "1"}, {"False", "0"}}};
    const auto* found = std::find_if(signs.begin(), signs.end(), [&](const auto& each) { return each.first == word; });
    return found == signs.end() ? std::string_view() : found->second;
  }

  /// What may follow an operand, where text_[at_] may not.
  std::string operator_instead() {
    constexpr std::string_view usual = "an operator or the end; operators are + - * / % < <= > >= == != && || and ? :";
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("=<")) return "'<='";
    if (rest.starts_with("=>")) return "'>='";
    if (rest.starts_with("=")) return "'==' to compare";
    if (rest.starts_with("&")) return "'&&': there are no operators on bits";
    if (rest.starts_with("|")) return "'||': there are no operators on bits";
    if (rest.starts_with("^")) return "another operator: there are none on bits, and no powers";
    if (rest.starts_with(".")) return "an integer: there are no fractions";
    const std::size_t begin = at_;
    const std::string_view sign = sign_for(identifier());
    at_ = begin;
    return sign.empty() ? std::string(usual) : fmt::format("'{}'", sign);
  }

  /// What an operand begins with, where text_[at_] begins none.
  std::string operand_instead() const {
    constexpr std::string_view usual = "a number, a name, '-', '!' or '('";
    if (at_ == text_.size()) return std::string(usual);
    const char c = text_[at_];
    if (c == '\'') return "a word in double quotes, with single ones around the whole in TOML: 'layout == \"nt\"'";
    if (at_ > 0 && text_[at_ - 1] == c && std::string_view("*/<>").find(c) != std::string_view::npos)
      return fmt::format("{}: there is no operator '{}{}'", usual, c, c);
    return std::string(usual);
  }

  std::string here() const { return at_ < text_.size() ? quote(text_.substr(at_, 1)) : "the end"; }

  /// Whether a type or a choice has the value.
  bool is_word(std::string_view name) const {
    for (int slot = 0; slot < symbols_.size(); ++slot) {
      const std::vector<std::string>& words = symbols_[slot].words;
      if (std::find(words.begin(), words.end(), name) != words.end()) return true;
    }
    return false;
  }

  std::vector<std::string> known_names() const {
    std::vector<std::string> names;
    for (int slot = 0; slot < symbols_.size(); ++slot) names.push_back(symbols_[slot].name);
    for (const Symbols::Term& term : symbols_.terms()) names.push_back(term.name);
    return names;
  }

  std::string known_list() const { return symbols_.size() == 0 ? "no name, only numbers" : one_of(known_names()); }

  [[noreturn]] void fail(std::size_t at, std::string_view found, std::string_view expected) const {
    throw Error(ErrorKind::bad_expression,
                fmt::format("found {} at column {} of {}, expected {}", found, at + 1, quote(text_), expected));
  }

  std::string_view text_;
  const Symbols& symbols_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

const std::vector<std::string>& function_names() {
  static const auto& names = *new std::vector<std::string>([] {
    std::vector<std::string> result;
    for (const Function& each : functions) result.emplace_back(each.name);
    result.emplace_back("sizeof");
    return result;
  }());
  return names;
}

Tree parse_tree(std::string_view text, const Symbols& symbols) {
  if (text.size() > max_text) {
    throw Error(ErrorKind::bad_expression,
                fmt::format("found {} characters in {}, expected at most {}", text.size(), quote(text), max_text));
  }
  return Parser(text, symbols).parse();
}

}  // namespace kiln::manifest

#include "jit/source_meaning.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

namespace kiln::jit {
namespace {

enum class Sort : std::uint8_t { refused, blank, newline, letter, digit, quote, punctuation };

constexpr std::array<Sort, 256> sorts = [] {
  std::array<Sort, 256> of{};
  for (std::size_t c = '!'; c <= '~'; ++c) of[c] = Sort::punctuation;
  for (std::size_t c = 'a'; c <= 'z'; ++c) of[c] = of[c - 'a' + 'A'] = Sort::letter;
  for (std::size_t c = '0'; c <= '9'; ++c) of[c] = Sort::digit;
  for (const char c : {' ', '\t', '\v', '\f', '\r'}) of[static_cast<unsigned char>(c)] = Sort::blank;
  for (const char c : {'$', '@', '`', '\\'}) of[static_cast<unsigned char>(c)] = Sort::refused;
  of['\n'] = Sort::newline;
  of['_'] = Sort::letter;
  of['"'] = of['\''] = Sort::quote;
  return of;
}();

Sort sort_of(char c) noexcept { return sorts[static_cast<unsigned char>(c)]; }
/// Whether this punctuation may be part of a longer operator.
bool joins(char c) noexcept { return std::string_view("+-*/%^&|=!<>:.#?").find(c) != std::string_view::npos; }
bool is_word(char c) noexcept { return sort_of(c) == Sort::letter || sort_of(c) == Sort::digit; }

/// Thrown where the tokens are not the whole meaning.
struct MoreThanTokens {};

}  // namespace

/// Writes the form of a text without line splices. The form is longer than the text by line ends before directives and
/// at its end, and by indices: all in all no longer than twice the text and two characters.
class FormWriter {
 public:
  FormWriter(std::string_view text, char* to, const SourceMeaning& of)
      : at_(text.data()),
        end_(text.data() + text.size()),
        to_(to),
        of_(of),
        all_blanks_(of.blanks_ == Blanks::all),
        any_revealing_(!of.revealing_.empty()) {}

  /// Returns the end of what was written. Throws MoreThanTokens.
  char* run() {
    while (at_ != end_) step();
    if (in_directive_) put('\n');
    return to_;
  }

 private:
  enum class Last : std::uint8_t { none, word, number, literal, punctuation };

  void step() {
    switch (sort_of(*at_)) {
      case Sort::blank: return blanks();
      case Sort::newline: return newline();
      case Sort::letter: return word();
      case Sort::digit: return number();
      case Sort::quote: return literal();
      case Sort::punctuation: return punctuation();
      case Sort::refused: throw MoreThanTokens();
    }
  }

  [[nodiscard]] char next() const noexcept { return at_ + 1 != end_ ? at_[1] : '\0'; }
  [[nodiscard]] std::string_view rest() const noexcept { return {at_, static_cast<std::size_t>(end_ - at_)}; }

  void put(char c) noexcept { *to_++ = c; }
  void put(const char* begin, const char* end) noexcept { to_ = std::copy(begin, end, to_); }

  /// Begins a token. `apart`: without a blank it would be read together with the last one.
  void begin(Last token, bool apart) noexcept {
    if (blank_ && (apart || in_directive_ || all_blanks_) && last_ != Last::none) put(' ');
    blank_ = line_begins_ = false;
    last_ = token;
  }

  void newline() noexcept {
    if (in_directive_) put('\n');
    if (in_directive_) last_ = Last::none;
    in_directive_ = false;
    blank_ = line_begins_ = true;
    ++at_;
  }

  void blanks() noexcept {
    const char* at = at_;
    const char* const end = end_;
    while (at != end && sort_of(*at) == Sort::blank) ++at;
    at_ = at;
    blank_ = true;
  }

  /// Takes and writes the word that begins here.
  std::string_view take_word() noexcept {
    const char* const end = end_;
    const char* at = at_;
    char* to = to_;
    while (at != end && is_word(*at)) *to++ = *at++;
    const std::string_view word(to_, static_cast<std::size_t>(to - to_));
    at_ = at;
    to_ = to;
    return word;
  }

  void word() {
    const bool touches = !blank_ && last_ == Last::literal;
    begin(Last::word, last_ == Last::word || last_ == Last::number || last_ == Last::literal);
    const std::string_view name = take_word();
    if (names_its_place(name) || (any_revealing_ && of_.revealing_.contains(name))) throw MoreThanTokens();
    if (name == "__has_include") return look_ahead_of_has_include();
    if (at_ == end_ || *at_ != '"' || name.back() != 'R') return;
    if (touches) throw MoreThanTokens();  // 'a'R"(": the R ends a literal and begins no raw string
    if (name == "R" || name == "LR" || name == "uR" || name == "UR" || name == "u8R") raw_string();
  }

  /// Whether this character goes on with a preprocessing number that ends with `previous`.
  [[nodiscard]] bool continues_number(char previous) const noexcept {
    if (*at_ == '+' || *at_ == '-') return previous == 'e' || previous == 'E' || previous == 'p' || previous == 'P';
    return is_word(*at_) || *at_ == '.' || (*at_ == '\'' && is_word(next()));
  }

  void number() {
    const bool after_point = last_ == Last::punctuation && to_[-1] == '.';
    begin(Last::number, last_ == Last::word || last_ == Last::number || last_ == Last::literal || after_point);
    do put(*at_++);
    while (at_ != end_ && continues_number(to_[-1]));
    if (at_ != end_ && sort_of(*at_) == Sort::quote) throw MoreThanTokens();
  }

  void literal() {
    begin(Last::literal, last_ == Last::word || last_ == Last::number);
    const char quote = *at_;
    const char* at = at_ + 1;
    for (; at != end_ && *at != quote; ++at) {
      if (*at == '\\' && at + 1 != end_) ++at;
      if (*at == '\n') throw MoreThanTokens();
    }
    if (at == end_ || (quote == '\'' && at == at_ + 1)) throw MoreThanTokens();
    put(at_, at + 1);
    at_ = at + 1;
  }

  void raw_string() {
    const std::string_view text = rest();
    const std::size_t open = text.find('(');
    if (open == std::string_view::npos) throw MoreThanTokens();
    const std::string closing = ")" + std::string(text.substr(1, open - 1)) + "\"";
    const std::size_t close = text.find(closing, open);
    if (close == std::string_view::npos) throw MoreThanTokens();
    put(at_, at_ + close + closing.size());
    at_ += close + closing.size();
    last_ = Last::literal;
  }

  /// Skips a comment and returns true, if one begins here.
  bool comment() {
    if (*at_ != '/' || (next() != '/' && next() != '*')) return false;
    const bool is_line = next() == '/';
    const std::size_t end = is_line ? rest().find('\n') : rest().find("*/", 2);
    if (!is_line && end == std::string_view::npos) throw MoreThanTokens();
    at_ = end == std::string_view::npos ? end_ : at_ + end + (is_line ? 0 : 2);
    blank_ = true;
    return true;
  }

  void skip_blanks() {
    do blanks();
    while (at_ != end_ && comment());
  }

  /// Whether this punctuation would be read together with the last token.
  [[nodiscard]] bool would_join(char c) const noexcept {
    if (last_ == Last::number) return continues_number(to_[-1]);
    return last_ == Last::punctuation && joins(c) && joins(to_[-1]);
  }

  void punctuation() {
    const char c = *at_;
    if (c == '/' && comment()) return;
    if (c == '.' && sort_of(next()) == Sort::digit) return number();
    if (c == '%' && next() == ':') throw MoreThanTokens();  // the digraph of #
    if (c == '#') return hash();
    begin(Last::punctuation, blank_ && would_join(c));
    put(c);
    ++at_;
  }

  void hash() {
    const bool is_directive = line_begins_ && !in_directive_;
    if (is_directive) last_ = Last::none;
    begin(Last::punctuation, blank_ && would_join('#'));
    if (is_directive) put('\n');
    put('#');
    ++at_;
    if (!is_directive) return;
    in_directive_ = true;
    skip_blanks();
    blank_ = false;
    const std::string_view name = take_word();
    if (name == "line" || (!name.empty() && sort_of(name.front()) == Sort::digit)) throw MoreThanTokens();
    last_ = Last::word;
    if (name == "include") include();
  }

  /// Returns the header name that comes next, with its quotes or angle brackets.
  std::string_view header_name() {
    skip_blanks();
    const std::string_view text = rest();
    const std::size_t close = text.empty()          ? std::string_view::npos
                              : text.front() == '<' ? text.find_first_of(">\n", 1)
                              : text.front() == '"' ? text.find_first_of("\"\n", 1)
                                                    : std::string_view::npos;
    if (close == std::string_view::npos || text[close] == '\n') throw MoreThanTokens();
    return text.substr(0, close + 1);
  }

  void include() {
    const std::string_view header = header_name();
    at_ += header.size();
    blank_ = false;
    last_ = Last::literal;
    const auto index = of_.index_of_(header.substr(1, header.size() - 2));
    if (!index) return put(header.data(), header.data() + header.size());
    put('@');
    to_ = std::to_chars(to_, to_ + 10, *index).ptr;
    put('@');
  }

  /// Throws for the name of a file with an index: that name counts.
  void look_ahead_of_has_include() {
    FormWriter ahead = *this;
    ahead.skip_blanks();
    if (ahead.at_ == end_ || *ahead.at_ != '(') return;  // defined(__has_include)
    ++ahead.at_;
    const std::string_view header = ahead.header_name();
    if (of_.index_of_(header.substr(1, header.size() - 2))) throw MoreThanTokens();
  }

  const char* at_;
  const char* end_;
  char* to_;
  const SourceMeaning& of_;
  const bool all_blanks_, any_revealing_;
  Last last_ = Last::none;
  bool blank_ = false;  // since the last token
  bool line_begins_ = true;
  bool in_directive_ = false;
};

namespace {

/// Whether a line ends with a backslash.
bool has_splice(std::string_view text) noexcept {
  for (std::size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at + 1)) {
    const std::string_view after = text.substr(at + 1, 2);
    if (after.starts_with('\n') || after == "\r\n") return true;
  }
  return false;
}

std::string without_splices(std::string_view text) {
  std::string joined;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find('\\'), text.size());
    joined += text.substr(0, at);
    text.remove_prefix(at);
    if (text.starts_with("\\\n") || text.starts_with("\\\r\n")) {
      text.remove_prefix(text[1] == '\n' ? 2 : 3);
    } else if (!text.empty()) {
      joined += text.front();
      text.remove_prefix(1);
    }
  }
  return joined;
}

}  // namespace

std::optional<std::string_view> SourceMeaning::of(std::string_view text) {
  if (has_splice(text)) {
    text = joined_ = without_splices(text);
    if (text.find("R\"") != std::string_view::npos) return std::nullopt;  // a raw string keeps its splices
  }
  form_.resize(std::max(form_.size(), 2 * text.size() + 2));
  try {
    const char* end = FormWriter(text, form_.data(), *this).run();
    return std::string_view(form_).substr(0, static_cast<std::size_t>(end - form_.data()));
  } catch (const MoreThanTokens&) {
    return std::nullopt;
  }
}

}  // namespace kiln::jit

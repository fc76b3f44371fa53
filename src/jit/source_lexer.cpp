#include "jit/source_lexer.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace kiln::jit {
namespace {

bool is_digit(int c) { return c >= '0' && c <= '9'; }
bool begins_identifier(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_identifier(int c) { return begins_identifier(c) || is_digit(c); }
bool is_exponent(char c) { return c == 'e' || c == 'E' || c == 'p' || c == 'P'; }
bool is_blank(int c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r'; }
bool is_header_character(int c) { return c != '>' && c != '"' && c != '\n' && c != -1; }

/// Characters that alone form only blanks, names, numbers and operators.
constexpr std::array<bool, 256> harmless = [] {
  std::array<bool, 256> is{};
  for (int c = ' '; c <= '~'; ++c) is[static_cast<std::size_t>(c)] = true;
  for (const char c : {'\t', '\v', '\f', '\r'}) is[static_cast<unsigned char>(c)] = true;
  for (const char c : {'"', '\'', '\\', '/', '_', '$', '@', '`'}) is[static_cast<unsigned char>(c)] = false;
  return is;
}();
bool is_harmless(char c) { return harmless[static_cast<unsigned char>(c)]; }

/// Whether the name that begins with this underscore is neither the beginning of __has_include, __has_embed, __DATE__,
/// __TIME__ and __TIMESTAMP__ nor begins with one of them.
bool begins_harmless_name(std::string_view text) {
  if (text.size() < 2 || text[1] != '_') return text.size() >= 2 && continues_identifier(text[1]);
  return text.size() >= 3 && continues_identifier(text[2]) &&
         std::string_view("hDT").find(text[2]) == std::string_view::npos;
}

bool is_raw_prefix(std::string_view text) {
  for (const std::string_view prefix : {"R", "LR", "uR", "UR", "u8R"}) {
    if (text == prefix) return true;
  }
  return false;
}

}  // namespace

int SourceLexer::peek() noexcept {
  while (at_ + 1 < text_.size() && text_[at_] == '\\') {
    const std::size_t newline = at_ + (text_[at_ + 1] == '\r' ? 2 : 1);
    if (newline >= text_.size() || text_[newline] != '\n') break;
    at_ = newline + 1;
    ++line_;
  }
  return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1;
}

int SourceLexer::take() noexcept {
  const int c = peek();
  if (c == '\n') ++line_;
  if (c != -1) ++at_;
  return c;
}

/// Skips the present character and those after it that belong, up to a backslash, which may splice lines. Precondition:
/// `belongs` refuses a newline.
template <class Belongs>
void SourceLexer::skip_plain(Belongs belongs) noexcept {
  do ++at_;
  while (at_ < text_.size() && text_[at_] != '\\' && belongs(text_[at_]));
}

void SourceLexer::skip_line() noexcept {
  for (int c = take(); c != '\n' && c != -1; c = take()) {
  }
}

bool SourceLexer::skip_harmless_line() noexcept {
  const std::string_view rest = text_.substr(at_);
  const std::size_t first = std::min(rest.find_first_not_of(" \t\v\f\r"), rest.size());
  const std::string_view line = rest.substr(first);
  if (line.empty() || line[0] == '#' || line[0] == '%' || line.starts_with("import") || line.starts_with("export"))
    return false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (is_harmless(c)) continue;
    if (c == '_' && ((at > 0 && continues_identifier(line[at - 1])) || begins_harmless_name(line.substr(at)))) continue;
    std::size_t end = at;
    if (c == '/') {
      if (line.substr(at, 2) != "//") {
        if (line.substr(at, 2) == "/*" || line.substr(at, 2) == "/\\") return false;
        continue;
      }
      end = std::min(line.find('\n', at), line.size());
      if (line.substr(at, end - at).find('\\') != std::string_view::npos) return false;
    }
    if (end == line.size() || line[end] != '\n') return false;
    at_ += first + end + 1;
    ++line_;
    return true;
  }
  return false;
}

std::string SourceLexer::take_while(bool (*belongs)(int)) {
  std::string taken;
  while (belongs(peek())) {
    const std::size_t begin = at_;
    skip_plain([belongs](char c) { return belongs(static_cast<unsigned char>(c)); });
    taken.append(text_.substr(begin, at_ - begin));
  }
  return taken;
}

void SourceLexer::skip_block_comment() {
  const int begin = line_;
  for (int previous = 0, c = take();; previous = c, c = take()) {
    if (c == -1) throw AmbiguousSource(begin, "a comment that does not end");
    if (previous == '*' && c == '/') return;
  }
}

void SourceLexer::skip_blanks() {
  for (;;) {
    const int c = peek();
    if (is_blank(c)) {
      skip_plain(is_blank);
      continue;
    }
    if (c != '/') return;
    SourceLexer ahead = *this;
    ahead.take();
    if (ahead.peek() == '/') {
      while (peek() != '\n' && peek() != -1) skip_plain([](char each) { return each != '\n'; });
    } else if (ahead.peek() == '*') {
      ahead.take();
      *this = ahead;
      skip_block_comment();
    } else {
      return;
    }
  }
}

std::optional<std::string> SourceLexer::header_name() {
  skip_blanks();
  const int open = peek();
  if (open != '"' && open != '<') return std::nullopt;
  SourceLexer ahead = *this;
  std::string name(1, static_cast<char>(ahead.take()));
  name += ahead.take_while(is_header_character);
  if (ahead.peek() != (open == '<' ? '>' : '"')) return std::nullopt;
  name += static_cast<char>(ahead.take());
  *this = ahead;
  return name;
}

Token SourceLexer::quoted(char quote) {
  Token token{TokenKind::literal, std::string(1, static_cast<char>(take())), line_};
  for (int c = peek(); c != '\n' && c != -1; c = peek()) {
    token.text += static_cast<char>(take());
    if (c == quote) {
      if (token.text == "''") throw AmbiguousSource(token.line, "an empty character literal");
      return with_suffix(std::move(token));
    }
    if (c == '\\' && peek() != '\n' && peek() != -1) token.text += static_cast<char>(take());
  }
  // An apostrophe in text that is compiled out ends with its line, unless a comment or literal begins after it.
  if (token.text.find("/*") != std::string::npos || token.text.find('"') != std::string::npos) {
    throw AmbiguousSource(token.line, "a quote that does not end on its line");
  }
  return token;
}

/// Reads characters without splices, which a raw string does not have.
Token SourceLexer::raw_string() {
  static constexpr std::size_t longest_delimiter = 16;
  Token token{TokenKind::literal, {}, line_};
  const std::size_t open = text_.find('(', at_);
  const std::string_view delimiter = text_.substr(at_ + 1, open - at_ - 1);
  if (open == std::string_view::npos || delimiter.size() > longest_delimiter ||
      delimiter.find_first_of(" )\\\t\v\f\r\n\"") != std::string_view::npos) {
    throw AmbiguousSource(line_, "a raw string with a malformed delimiter");
  }
  const std::string closing = ")" + std::string(delimiter) + "\"";
  const std::size_t close = text_.find(closing, open);
  if (close == std::string_view::npos) throw AmbiguousSource(line_, "a raw string that does not end");
  token.text = text_.substr(at_, close + closing.size() - at_);
  for (const char c : token.text) line_ += c == '\n';
  token.spans_lines = line_ != token.line;
  at_ = close + closing.size();
  return with_suffix(std::move(token));
}

/// Appends the suffix of a user-defined literal. In 'a'R"(" and 1e+R"(" the R ends a literal and begins no raw string:
/// refused.
Token SourceLexer::with_suffix(Token token) {
  if (begins_identifier(peek())) token.text += take_while(continues_identifier);
  if (token.text.back() == 'R' && peek() == '"')
    throw AmbiguousSource(token.line, "a raw string that touches a literal");
  return token;
}

/// Reads a preprocessing number, which need not be a number: 0xR, 1e+x.
Token SourceLexer::number() {
  Token token{TokenKind::number, {}, line_};
  for (;;) {
    token.text += take_while([](int c) { return continues_identifier(c) || c == '.'; });
    SourceLexer ahead = *this;
    const int c = ahead.take();
    const bool exponent = (c == '+' || c == '-') && !token.text.empty() && is_exponent(token.text.back());
    const bool separator = c == '\'' && continues_identifier(ahead.peek());
    if (c == '\'' && !separator) throw AmbiguousSource(line_, "a quote that touches a number");
    if (!exponent && !separator) return with_suffix(std::move(token));
    token.text += static_cast<char>(c);
    *this = ahead;
  }
}

Token SourceLexer::next() {
  skip_blanks();
  const int c = peek();
  const int line = line_;
  if (c == -1) return {TokenKind::end_of_file, {}, line};
  if (c == '\n') return {TokenKind::end_of_line, std::string(1, static_cast<char>(take())), line};
  if (begins_identifier(c)) {
    Token token{TokenKind::identifier, take_while(continues_identifier), line};
    return is_raw_prefix(token.text) && peek() == '"' ? raw_string() : token;
  }
  if (c == '"' || c == '\'') return quoted(static_cast<char>(c));
  if (is_digit(c)) return number();
  if (c < ' ' || c > '~' || c == '\\' || c == '$' || c == '@' || c == '`') {
    throw AmbiguousSource(line, "the stray byte " + std::to_string(c));
  }
  take();
  if (c == '.' && is_digit(peek())) return number();
  if (c == '%' && peek() == ':') {  // the digraph of #
    take();
    return {TokenKind::punctuation, "#", line};
  }
  return {TokenKind::punctuation, std::string(1, static_cast<char>(c)), line};
}

}  // namespace kiln::jit

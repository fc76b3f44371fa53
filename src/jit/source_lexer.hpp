// Preprocessing tokens of a source as NVRTC's front end reads them: line splices, comments, raw strings, digraphs.
// The lexer evaluates no conditionals. It must never read as text what the compiler reads as a directive.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kiln::jit {

enum class TokenKind { identifier, literal, number, punctuation, end_of_line, end_of_file };

struct Token {
  TokenKind kind = TokenKind::end_of_file;
  std::string text;
  int line = 1;
  bool spans_lines = false;  // a raw string that holds a newline
};

/// Thrown for text that compilers may read in different ways: a stray byte, an unterminated literal or comment.
struct AmbiguousSource : std::runtime_error {
  AmbiguousSource(int at_line, const std::string& what) : std::runtime_error(what), line(at_line) {}
  int line;
};

class SourceLexer {
 public:
  explicit SourceLexer(std::string_view text) noexcept : text_(text) {}
  /// Returns the next token. Throws AmbiguousSource.
  Token next();
  /// Returns the header name that comes next on this line, with its quotes or angle brackets, unescaped. Throws
  /// AmbiguousSource.
  std::optional<std::string> header_name();
  /// Advances past the end of the present line.
  void skip_line() noexcept;
  /// At the beginning of a line: skips the line and returns true if it has no directive, literal, block comment,
  /// splice, leading import or export, or name that may read a file or the clock. Else returns false and skips nothing.
  bool skip_harmless_line() noexcept;

 private:
  [[nodiscard]] int peek() noexcept;  // the next character past line splices, -1 at the end
  int take() noexcept;
  void skip_blanks();
  void skip_block_comment();
  template <class Belongs>
  void skip_plain(Belongs belongs) noexcept;
  std::string take_while(bool (*belongs)(int));
  Token quoted(char quote);
  Token raw_string();
  Token number();
  Token with_suffix(Token token);

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace kiln::jit

// Preprocessing tokens of a source as NVRTC's front end sees them: spliced lines, comments, raw strings, digraphs.
// It need not evaluate conditionals; it must never take for text what the compiler takes for a directive.
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

/// Text that compilers may read in different ways: a stray byte, a literal or comment that does not end.
struct AmbiguousSource : std::runtime_error {
  AmbiguousSource(int at_line, const std::string& what) : std::runtime_error(what), line(at_line) {}
  int line;
};

class SourceLexer {
 public:
  explicit SourceLexer(std::string_view text) noexcept : text_(text) {}
  /// Throws AmbiguousSource.
  Token next();
  /// A header name, quotes or angle brackets included, when one stands next on this line; nothing is unescaped in it.
  std::optional<std::string> header_name();
  /// Past the end of the present line.
  void skip_line() noexcept;
  /// From where a line begins past its end, if that can be seen without taking it apart: it is whole and holds neither a directive, nor a
  /// literal, nor a comment but one that ends with it, nor a name that begins with an underscore, nor import or export at its beginning.
  /// Else nothing is done, and false.
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

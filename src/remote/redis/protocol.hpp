// What is said to a Redis server, and its answers, by hiredis's formatter and reader.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct redisReader;

namespace kiln::remote::redis {

struct Reply {
  enum class Kind : std::uint8_t { nothing, text, number, status, error, list };
  Kind kind = Kind::nothing;
  std::string text;  // of text, status and error
  long long number = 0;
  std::vector<Reply> items;
};

/// Returns the command as bytes to be sent.
std::string command_of(std::initializer_list<std::string_view> words);

/// What an answer may hold. A server that sends or announces more is not read further.
struct ReplyLimits {
  std::size_t bytes = 0;
  std::size_t items = 0;
};
class ReplyTooLarge : public std::runtime_error {
 public:
  ReplyTooLarge() : std::runtime_error("the Redis server's answer is larger than allowed") {}
};

/// Finds the answers in what a server sends, one after the other.
class ReplyReader {
 public:
  ReplyReader();
  void set_limits(const ReplyLimits& limits) { limits_ = limits; }
  /// Throws ReplyTooLarge before it stores what is past the limits.
  void feed(std::string_view bytes);
  /// Returns nothing where an answer is not complete. Throws ReplyTooLarge, and RemoteFailure(damaged) for what is no
  /// answer.
  std::optional<Reply> next();
  [[nodiscard]] bool is_empty() const noexcept;  // no byte is fed that no answer has taken

 private:
  struct Free {
    void operator()(redisReader* reader) const noexcept;
  };
  void refuse_announced() const;

  std::unique_ptr<redisReader, Free> reader_;
  ReplyLimits limits_;
  std::size_t bytes_ = 0;  // fed since the last answer
};

}  // namespace kiln::remote::redis

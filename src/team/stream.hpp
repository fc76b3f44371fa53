// Messages over a stream socket: each goes behind its length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "team/clock.hpp"

namespace kiln::team {

/// What of the messages of one socket has come, and what is still to be sent.
class Stream {
 public:
  explicit Stream(std::size_t longest_message) noexcept : longest_(longest_message) {}

  enum class Outcome { done, closed, late };
  /// Sends the message. Where it returns `late`, the rest goes ahead of the next message, or by flush(). Throws
  /// Error(io) where the socket cannot be written.
  Outcome send(int socket, std::string_view bytes, Clock::time_point end);
  Outcome flush(int socket, Clock::time_point end);
  /// Gives the next message. What has come of it stays where the rest is `late`. Reads nothing past it, so that poll(2)
  /// tells of the next one. `closed` is returned also for a length of 0 and for a longer message than the longest.
  /// Throws Error(io) where the socket cannot be read.
  Outcome receive(int socket, std::string& bytes, Clock::time_point end);

 private:
  std::size_t longest_;
  std::string unsent_;
  std::size_t sent_ = 0;  // of unsent_
  std::string coming_;    // the length and what follows it
  std::size_t came_ = 0;  // of coming_
};

}  // namespace kiln::team

// The connection between two ranks: messages that arrive whole, with a file descriptor beside them or none.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "team/descriptor.hpp"

namespace kiln::team {

using Clock = std::chrono::steady_clock;

/// As poll(2) takes it: milliseconds from now, 0 for a time that has passed.
int milliseconds_until(Clock::time_point end);

struct Message {
  std::string bytes;
  Descriptor descriptor;
};

/// A connected SOCK_SEQPACKET socket.
class Link {
 public:
  static constexpr std::size_t longest_message = (std::size_t{64} << 10) + 64;  // bytes

  explicit Link(Descriptor socket) noexcept : socket_(std::move(socket)) {}

  enum class State { done, closed, late };
  /// Sends 1 to longest_message bytes. Returns `late` when the other end's buffer stays full until `end`, and `closed`
  /// when the other end is closed.
  [[nodiscard]] State send(std::string_view bytes, int descriptor, Clock::time_point end) const;
  /// Returns `closed` also for what no Link sent: empty and longer messages, and more than one descriptor.
  [[nodiscard]] State receive(Message& message, Clock::time_point end) const;
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

 private:
  Descriptor socket_;
};

/// The process and user at the other end, when it connected or began to listen. `process` is 0 where this process
/// cannot see it, as from a container of its own.
struct Owner {
  int process = 0;
  unsigned user = 0;
};
/// Throws Error(io).
Owner owner_of(const Link& link);

}  // namespace kiln::team

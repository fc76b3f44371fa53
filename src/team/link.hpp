// The connection between two ranks: messages that arrive whole, with a file descriptor beside them or none.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "team/descriptor.hpp"

namespace kiln::team {

using Clock = std::chrono::steady_clock;

/// Returns the time that is `timeout` from now; the clock's last for a longer one, now for a negative one.
Clock::time_point end_after(std::chrono::milliseconds timeout);
/// As poll(2) takes it: milliseconds from now, 0 for a time that has passed, INT_MAX at most.
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
  /// when the other end is closed. Throws Error(io) for any other failure, as for a descriptor that is not open.
  [[nodiscard]] State send(std::string_view bytes, int descriptor, Clock::time_point end) const;
  /// Returns `closed` also for what no Link sent: empty and longer messages, and more than one descriptor. Throws
  /// Error(io) where the socket cannot be read.
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

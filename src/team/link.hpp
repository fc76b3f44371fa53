// The connection between two ranks: messages that arrive whole, on one host with a file descriptor beside them or none.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "team/clock.hpp"
#include "team/descriptor.hpp"
#include "team/stream.hpp"

namespace kiln::team {

struct Message {
  std::string bytes;
  Descriptor descriptor;
};

class Link {
 public:
  enum class Kind { packets, stream };
  static constexpr std::size_t longest_message = (std::size_t{64} << 10) + 64;  // bytes

  /// A connected socket: SOCK_SEQPACKET of one host, or SOCK_STREAM.
  explicit Link(Descriptor socket, Kind kind = Kind::packets)
      : socket_(std::move(socket)),
        stream_(kind == Kind::stream ? std::make_unique<Stream>(longest_message) : nullptr) {}

  using Outcome = Stream::Outcome;
  /// Sends 1 to longest_message bytes. Returns `late` when the other end's buffer stays full until `end`, and `closed`
  /// when the other end is closed. Throws Error(io) for any other failure, as for a descriptor that is not open, or for
  /// any where the link is a stream. A stream keeps what of a `late` message was not sent, for flush().
  [[nodiscard]] Outcome send(std::string_view bytes, int descriptor, Clock::time_point end) const;
  /// Sends what is left of messages on a stream. Returns and throws as send().
  [[nodiscard]] Outcome flush(Clock::time_point end) const;
  /// Returns `closed` also for what no Link sent: empty and longer messages, and more than one descriptor. Throws
  /// Error(io) where the socket cannot be read.
  [[nodiscard]] Outcome receive(Message& message, Clock::time_point end) const;
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  [[nodiscard]] bool is_stream() const noexcept { return stream_ != nullptr; }
  /// Ends a stream for both sides, also where other descriptors of the socket stay open, as in a forked child. The
  /// other end still gets what was sent.
  void leave() const noexcept;

 private:
  Descriptor socket_;
  std::unique_ptr<Stream> stream_;  // null: packets
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

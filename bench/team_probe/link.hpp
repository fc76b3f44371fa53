// What the two processes of bench_team_probe say to each other, over one end of a socket pair that keeps messages whole.
#pragma once

#include <chrono>
#include <cstdint>

namespace kiln::bench {

/// The other process has ended, and says itself why.
struct PeerEnded {};

class Link {
 public:
  explicit Link(int descriptor) : descriptor_(descriptor) {}
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Each throws PeerEnded, or Error(io).
  void send(std::int64_t value) const;
  [[nodiscard]] std::int64_t receive() const;
  void send_descriptor(int descriptor) const;
  [[nodiscard]] int receive_descriptor() const;
  /// Returns once both processes have called it.
  void meet() const;
  /// Whether the other end closes within `limit`; a message that comes meanwhile is dropped.
  [[nodiscard]] bool closes_within(std::chrono::milliseconds limit) const;

 private:
  int descriptor_;
};

}  // namespace kiln::bench

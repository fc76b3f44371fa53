// Messages between a process and its worker, over one end of a socket pair: 8 bytes of length, then CBOR (RFC 8949).
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

namespace kiln::process {

class Channel {
 public:
  explicit Channel(int descriptor) noexcept : descriptor_(descriptor) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  using Timeout = std::optional<std::chrono::milliseconds>;
  enum class Outcome { received, closed, late, unreadable };
  /// Returns false when the other end is closed.
  bool send(const nlohmann::json& message) const;
  /// Waits for a whole message, at most `timeout` when given; returns `late` after that. Returns `closed` when the
  /// other end closed, and `unreadable` when it sent what is no message, such as lists nested more than 64 deep.
  Outcome receive(nlohmann::json& message, Timeout timeout = {}) const;
  /// send(), then receive(), both within `timeout`: an end that reads nothing is `late` too.
  Outcome ask(const nlohmann::json& message, nlohmann::json& answer, std::chrono::milliseconds timeout) const;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace kiln::process

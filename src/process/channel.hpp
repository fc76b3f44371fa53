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

  enum class State { received, closed, late };
  /// Returns false when the other end is closed.
  bool send(const nlohmann::json& message) const;
  /// Waits for a whole message, at most `timeout` when given; returns `late` after that. Returns `closed` when the
  /// other end closed or sent what is no message.
  State receive(nlohmann::json& message, std::optional<std::chrono::milliseconds> timeout = {}) const;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace kiln::process

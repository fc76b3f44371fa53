#include "process/channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "process/message.hpp"

namespace kiln::process {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t longest_message = std::uint64_t{1} << 30;  // bytes
constexpr std::size_t first_part = std::size_t{1} << 16;           // bytes

/// A point in time, or never.
class Deadline {
 public:
  explicit Deadline(std::optional<std::chrono::milliseconds> timeout)
      : at_(timeout ? Clock::now() + *timeout : Clock::time_point::max()) {}
  /// As poll(2) takes it: -1 for never.
  [[nodiscard]] int milliseconds_left() const {
    if (at_ == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return left > 0 ? static_cast<int>(left) : 0;
  }

 private:
  Clock::time_point at_;
};

/// Waits until the socket is ready for `event`.
Channel::Outcome wait_for(int descriptor, short event, const Deadline& deadline) {
  for (;;) {
    pollfd waiting{descriptor, event, 0};
    const int ready = poll(&waiting, 1, deadline.milliseconds_left());
    if (ready > 0) return Channel::Outcome::received;
    if (ready == 0) return Channel::Outcome::late;
    if (errno != EINTR) return Channel::Outcome::closed;
  }
}

Channel::Outcome read_whole(int descriptor, unsigned char* bytes, std::size_t count, const Deadline& deadline) {
  while (count > 0) {
    if (const auto ready = wait_for(descriptor, POLLIN, deadline); ready != Channel::Outcome::received) return ready;
    const ssize_t got = recv(descriptor, bytes, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Channel::Outcome::closed;
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
  return Channel::Outcome::received;
}

Channel::Outcome write_whole(int descriptor, const unsigned char* bytes, std::size_t count, const Deadline& deadline) {
  while (count > 0) {
    if (const auto ready = wait_for(descriptor, POLLOUT, deadline); ready != Channel::Outcome::received) return ready;
    const ssize_t put = ::send(descriptor, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (put <= 0) return Channel::Outcome::closed;
    bytes += put;
    count -= static_cast<std::size_t>(put);
  }
  return Channel::Outcome::received;
}

Channel::Outcome write_message(int descriptor, const nlohmann::json& message, const Deadline& deadline) {
  const std::vector<unsigned char> body = nlohmann::json::to_cbor(message);
  const std::uint64_t length = body.size();
  std::array<unsigned char, sizeof length> head{};
  std::memcpy(head.data(), &length, sizeof length);
  if (const auto state = write_whole(descriptor, head.data(), head.size(), deadline);
      state != Channel::Outcome::received)
    return state;
  return write_whole(descriptor, body.data(), body.size(), deadline);
}

Channel::Outcome read_message(int descriptor, nlohmann::json& message, const Deadline& deadline) {
  std::uint64_t length = 0;
  std::array<unsigned char, sizeof length> head{};
  if (const auto state = read_whole(descriptor, head.data(), head.size(), deadline);
      state != Channel::Outcome::received)
    return state;
  std::memcpy(&length, head.data(), sizeof length);
  if (length > longest_message) return Channel::Outcome::unreadable;
  std::vector<unsigned char> body;
  while (body.size() < length) {  // memory for what has come, not for what is promised
    const std::size_t before = body.size();
    body.resize(before + std::min<std::size_t>(length - before, std::max(before, first_part)));
    if (const auto state = read_whole(descriptor, body.data() + before, body.size() - before, deadline);
        state != Channel::Outcome::received)
      return state;
  }
  std::optional<nlohmann::json> read = read_cbor(body);
  if (!read) return Channel::Outcome::unreadable;
  message = std::move(*read);
  return Channel::Outcome::received;
}

}  // namespace

Channel::~Channel() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool Channel::send(const nlohmann::json& message) const {
  return write_message(descriptor_, message, Deadline({})) == Outcome::received;
}

Channel::Outcome Channel::receive(nlohmann::json& message, Timeout timeout) const {
  return read_message(descriptor_, message, Deadline(timeout));
}

Channel::Outcome Channel::ask(const nlohmann::json& message, nlohmann::json& answer,
                              std::chrono::milliseconds timeout) const {
  const Deadline deadline(timeout);
  const Outcome sent = write_message(descriptor_, message, deadline);
  return sent == Outcome::received ? read_message(descriptor_, answer, deadline) : sent;
}

}  // namespace kiln::process

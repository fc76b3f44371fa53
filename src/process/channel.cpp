#include "process/channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace kiln::process {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t longest_message = std::uint64_t{1} << 30;  // bytes

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

Channel::State read_whole(int descriptor, unsigned char* bytes, std::size_t count, const Deadline& deadline) {
  while (count > 0) {
    pollfd waiting{descriptor, POLLIN, 0};
    const int ready = poll(&waiting, 1, deadline.milliseconds_left());
    if (ready == 0) return Channel::State::late;
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t got = recv(descriptor, bytes, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Channel::State::closed;
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
  return Channel::State::received;
}

bool write_whole(int descriptor, const unsigned char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t put = ::send(descriptor, bytes, count, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes += put;
    count -= static_cast<std::size_t>(put);
  }
  return true;
}

}  // namespace

Channel::~Channel() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool Channel::send(const nlohmann::json& message) const {
  const std::vector<unsigned char> body = nlohmann::json::to_cbor(message);
  const std::uint64_t length = body.size();
  std::array<unsigned char, sizeof length> head{};
  std::memcpy(head.data(), &length, sizeof length);
  return write_whole(descriptor_, head.data(), head.size()) && write_whole(descriptor_, body.data(), body.size());
}

Channel::State Channel::receive(nlohmann::json& message, std::optional<std::chrono::milliseconds> timeout) const {
  const Deadline deadline(timeout);
  std::uint64_t length = 0;
  std::array<unsigned char, sizeof length> head{};
  if (const State state = read_whole(descriptor_, head.data(), head.size(), deadline); state != State::received)
    return state;
  std::memcpy(&length, head.data(), sizeof length);
  if (length > longest_message) return State::closed;
  std::vector<unsigned char> body(length);
  if (const State state = read_whole(descriptor_, body.data(), body.size(), deadline); state != State::received)
    return state;
  message = nlohmann::json::from_cbor(body, true, false);
  return message.is_discarded() ? State::closed : State::received;
}

}  // namespace kiln::process

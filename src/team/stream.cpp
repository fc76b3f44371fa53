#include "team/stream.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "kiln/error.hpp"

namespace kiln::team {
namespace {

constexpr std::size_t length_bytes = sizeof(std::uint32_t);  // the length

/// A host that is lost is as good as closed, as one that is silent for longer than the socket's own time-outs allow.
bool is_lost(int error) {
  constexpr int closed[] = {EPIPE,        ECONNRESET, ENOTCONN, ECONNABORTED, ETIMEDOUT,
                            EHOSTUNREACH, EHOSTDOWN,  ENETDOWN, ENETUNREACH,  ENETRESET};
  return std::find(std::begin(closed), std::end(closed), error) != std::end(closed);
}

}  // namespace

Stream::Outcome Stream::send(int socket, std::string_view bytes, Clock::time_point end) {
  const auto length = static_cast<std::uint32_t>(bytes.size());
  unsent_.append(reinterpret_cast<const char*>(&length), length_bytes).append(bytes);
  return flush(socket, end);
}

Stream::Outcome Stream::flush(int socket, Clock::time_point end) {
  while (sent_ < unsent_.size()) {
    const ssize_t count = ::send(socket, unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent_ += static_cast<std::size_t>(count);
      continue;
    }
    if (is_lost(errno)) return Outcome::closed;
    if (!try_again(errno)) throw Error(ErrorKind::io, fmt::format("sending to a rank: send: {}", std::strerror(errno)));
    if (!wait_until_ready(socket, POLLOUT, end)) return Outcome::late;
  }
  unsent_.clear();
  sent_ = 0;
  return Outcome::done;
}

Stream::Outcome Stream::receive(int socket, std::string& bytes, Clock::time_point end) {
  for (;;) {
    std::size_t needed = length_bytes;
    if (came_ >= length_bytes) {
      std::uint32_t length = 0;
      std::memcpy(&length, coming_.data(), length_bytes);
      if (length == 0 || length > longest_) return Outcome::closed;
      needed += length;
      if (came_ == needed) {
        bytes.assign(coming_, length_bytes, length);
        came_ = 0;
        return Outcome::done;
      }
    }
    coming_.resize(needed);
    const ssize_t count = recv(socket, coming_.data() + came_, needed - came_, MSG_DONTWAIT);
    if (count > 0) {
      came_ += static_cast<std::size_t>(count);
      continue;
    }
    if (count == 0 || is_lost(errno)) return Outcome::closed;
    if (!try_again(errno))
      throw Error(ErrorKind::io, fmt::format("receiving from a rank: recv: {}", std::strerror(errno)));
    if (!wait_until_ready(socket, POLLIN, end)) return Outcome::late;
  }
}

}  // namespace kiln::team

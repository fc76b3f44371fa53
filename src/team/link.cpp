#include "team/link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::team {
namespace {

/// Returns false at `end`.
bool wait_until_ready(int socket, short events, Clock::time_point end) {
  for (;;) {
    pollfd waiting{socket, events, 0};
    const int ready = poll(&waiting, 1, milliseconds_until(end));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= end) return false;
    if (ready < 0 && errno != EINTR)
      throw Error(ErrorKind::io, fmt::format("Waiting for a rank: poll: {}", std::strerror(errno)));
  }
}

bool try_again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }
bool means_closed(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

struct Envelope {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  iovec part{};
  msghdr header{};

  Envelope(void* bytes, std::size_t count) : part{bytes, count} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  void attach(int descriptor) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(sizeof descriptor);
    cmsghdr* attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(attached), &descriptor, sizeof descriptor);
  }
  void make_space() {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  [[nodiscard]] std::vector<Descriptor> take_descriptors() {
    std::vector<Descriptor> taken;
    for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
      if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(each) + i * sizeof descriptor, sizeof descriptor);
        taken.emplace_back(descriptor);
      }
    }
    return taken;
  }
};

}  // namespace

Clock::time_point end_after(std::chrono::milliseconds timeout) {
  const Clock::time_point now = Clock::now();
  const auto longest = std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - now);
  return now + std::clamp(timeout, std::chrono::milliseconds(0), longest);
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

Link::State Link::send(std::string_view bytes, int descriptor, Clock::time_point end) const {
  Envelope envelope(const_cast<char*>(bytes.data()), bytes.size());  // NOLINT: sendmsg only reads them
  if (descriptor >= 0) envelope.attach(descriptor);
  for (;;) {
    if (sendmsg(socket_.get(), &envelope.header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return State::done;
    if (means_closed(errno)) return State::closed;
    if (!try_again(errno))
      throw Error(ErrorKind::io, fmt::format("Sending to a rank: sendmsg: {}", std::strerror(errno)));
    if (!wait_until_ready(socket_.get(), POLLOUT, end)) return State::late;
  }
}

Link::State Link::receive(Message& message, Clock::time_point end) const {
  message.bytes.resize(longest_message);
  bool was_reset = false;
  for (;;) {
    if (!wait_until_ready(socket_.get(), POLLIN, end)) return State::late;
    Envelope envelope(message.bytes.data(), message.bytes.size());
    envelope.make_space();
    const ssize_t count = recvmsg(socket_.get(), &envelope.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && try_again(errno)) continue;
    // The kernel says first that the other end left messages unread, and only then gives those that it sent before.
    if (count < 0 && errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
    if (count < 0 && !means_closed(errno))
      throw Error(ErrorKind::io, fmt::format("Receiving from a rank: recvmsg: {}", std::strerror(errno)));
    if (count <= 0) return State::closed;
    std::vector<Descriptor> descriptors = envelope.take_descriptors();
    if ((envelope.header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || descriptors.size() > 1) return State::closed;
    message.bytes.resize(static_cast<std::size_t>(count));
    message.descriptor = descriptors.empty() ? Descriptor() : std::move(descriptors.front());
    return State::done;
  }
}

Owner owner_of(const Link& link) {
  ucred found{};
  socklen_t bytes = sizeof found;
  if (getsockopt(link.descriptor(), SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0)
    throw Error(ErrorKind::io, fmt::format("Asking who is at a socket's other end: {}", std::strerror(errno)));
  return {found.pid, found.uid};
}

}  // namespace kiln::team

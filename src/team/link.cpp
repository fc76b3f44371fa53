#include "team/link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::team {
namespace {

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

Link::Outcome Link::send(std::string_view bytes, int descriptor, Clock::time_point end) const {
  if (stream_ && descriptor >= 0)
    throw Error(ErrorKind::io, "sending to a rank: a file descriptor cannot be sent to another host");
  if (stream_) return stream_->send(socket_.get(), bytes, end);
  Envelope envelope(const_cast<char*>(bytes.data()), bytes.size());  // NOLINT: sendmsg only reads them
  if (descriptor >= 0) envelope.attach(descriptor);
  for (;;) {
    if (sendmsg(socket_.get(), &envelope.header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Outcome::done;
    if (means_closed(errno)) return Outcome::closed;
    if (!try_again(errno))
      throw Error(ErrorKind::io, fmt::format("sending to a rank: sendmsg: {}", std::strerror(errno)));
    if (!wait_until_ready(socket_.get(), POLLOUT, end)) return Outcome::late;
  }
}

Link::Outcome Link::flush(Clock::time_point end) const {
  return stream_ ? stream_->flush(socket_.get(), end) : Outcome::done;
}

Link::Outcome Link::receive(Message& message, Clock::time_point end) const {
  if (stream_) return stream_->receive(socket_.get(), message.bytes, end);
  message.bytes.resize(longest_message);
  bool was_reset = false;
  for (;;) {
    if (!wait_until_ready(socket_.get(), POLLIN, end)) return Outcome::late;
    Envelope envelope(message.bytes.data(), message.bytes.size());
    envelope.make_space();
    const ssize_t count = recvmsg(socket_.get(), &envelope.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && try_again(errno)) continue;
    // The kernel says first that the other end left messages unread, and only then gives those that it sent before.
    if (count < 0 && errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
    if (count < 0 && !means_closed(errno))
      throw Error(ErrorKind::io, fmt::format("receiving from a rank: recvmsg: {}", std::strerror(errno)));
    if (count <= 0) return Outcome::closed;
    std::vector<Descriptor> descriptors = envelope.take_descriptors();
    if ((envelope.header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || descriptors.size() > 1) return Outcome::closed;
    message.bytes.resize(static_cast<std::size_t>(count));
    message.descriptor = descriptors.empty() ? Descriptor() : std::move(descriptors.front());
    return Outcome::done;
  }
}

void Link::leave() const noexcept {
  if (!stream_ || !socket_) return;
  // What is left unread would make the system reset the connection, and the other end might lose what it has yet to
  // read.
  std::array<char, 4096> unread{};
  while (recv(socket_.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
  }
  shutdown(socket_.get(), SHUT_RDWR);
}

Owner owner_of(const Link& link) {
  ucred found{};
  socklen_t bytes = sizeof found;
  if (getsockopt(link.descriptor(), SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0)
    throw Error(ErrorKind::io, fmt::format("asking who is at a socket's other end: {}", std::strerror(errno)));
  return {found.pid, found.uid};
}

}  // namespace kiln::team

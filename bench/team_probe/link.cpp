#include "team_probe/link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kiln/error.hpp"

namespace kiln::bench {
namespace {

void transfer(ssize_t bytes, const char* what) {
  if (bytes > 0) return;
  if (bytes == 0 || errno == EPIPE || errno == ECONNRESET) throw PeerEnded{};
  throw Error(ErrorKind::io, fmt::format("{}: {}", what, std::strerror(errno)));
}

/// One message of one value, with a descriptor beside it or none.
struct Message {
  std::int64_t value = 0;
  iovec part{&value, sizeof value};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  explicit Message(bool with_descriptor) {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!with_descriptor) return;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

}  // namespace

Link::~Link() {
  if (descriptor_ >= 0) close(descriptor_);
}

void Link::send(std::int64_t value) const {
  Message message(false);
  message.value = value;
  transfer(sendmsg(descriptor_, &message.header, MSG_NOSIGNAL), "sending to the other process");
}

std::int64_t Link::receive() const {
  Message message(false);
  transfer(recvmsg(descriptor_, &message.header, 0), "receiving from the other process");
  return message.value;
}

void Link::send_descriptor(int descriptor) const {
  Message message(true);
  cmsghdr* attached = CMSG_FIRSTHDR(&message.header);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &descriptor, sizeof descriptor);
  transfer(sendmsg(descriptor_, &message.header, MSG_NOSIGNAL), "sending a descriptor to the other process");
}

int Link::receive_descriptor() const {
  Message message(true);
  transfer(recvmsg(descriptor_, &message.header, MSG_CMSG_CLOEXEC), "receiving a descriptor from the other process");
  const cmsghdr* attached = CMSG_FIRSTHDR(&message.header);
  if (attached == nullptr || attached->cmsg_type != SCM_RIGHTS)
    throw Error(ErrorKind::io, "a descriptor was to come from the other process, and none came");
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(attached), sizeof descriptor);
  return descriptor;
}

void Link::meet() const {
  send(0);
  static_cast<void>(receive());
}

bool Link::closes_within(std::chrono::milliseconds limit) const {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd waiting{descriptor_, POLLIN, 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) == 0) return false;
    std::int64_t dropped = 0;
    if (recv(descriptor_, &dropped, sizeof dropped, 0) <= 0) return true;
  }
}

}  // namespace kiln::bench

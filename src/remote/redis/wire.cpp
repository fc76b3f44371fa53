#include "remote/redis/wire.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>

#include "remote/redis/resolve.hpp"

namespace kiln::remote::redis {
namespace {

int milliseconds_left(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

[[noreturn]] void fail_late() { throw Failure(Failure::Kind::slow, "the Redis server did not answer in time"); }

[[noreturn]] void fail_closed() { throw Failure(Failure::Kind::unreachable, "the Redis server closed the connection"); }

[[noreturn]] void fail_unreachable(int error) {
  throw Failure(Failure::Kind::unreachable,
                fmt::format("the Redis server cannot be reached: {}", std::strerror(error)));
}

bool is_again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Socket::Socket(const std::string& host, int port, const std::string& path, Deadline deadline) {
  try {
    path.empty() ? connect_to_host(host, port, deadline) : connect_to_path(path, deadline);
  } catch (...) {
    if (descriptor_ >= 0) close(descriptor_);
    throw;
  }
}

Socket::~Socket() { close(descriptor_); }

void Socket::connect_to_path(const std::string& path, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  for (;;) {
    const int error = connect_to(&address, sizeof address, deadline);
    if (error == 0) return;
    if (error != EAGAIN) fail_unreachable(error);
    // The server's queue is full. For a Unix socket poll(2) does not report it.
    if (milliseconds_left(deadline) == 0) fail_late();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Socket::connect_to_host(const std::string& host, int port, Deadline deadline) {
  const std::vector<SocketAddress> addresses = resolve(host, port, deadline);
  if (addresses.empty()) {
    if (milliseconds_left(deadline) == 0)
      throw Failure(Failure::Kind::slow, "the name of the Redis server's host was not found in time");
    throw Failure(Failure::Kind::unreachable, "the name of the Redis server's host is not known");
  }
  int error = 0;
  for (std::size_t at = 0; at < addresses.size(); ++at) {
    // One address that drops packets leaves time for those behind it.
    const auto share = (deadline - std::chrono::steady_clock::now()) / static_cast<int>(addresses.size() - at);
    error = connect_to(&addresses[at].bytes, addresses[at].length, std::chrono::steady_clock::now() + share);
    if (error == 0) break;
  }
  if (error == ETIMEDOUT) fail_late();
  if (error != 0) fail_unreachable(error);
  const int on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int Socket::connect_to(const void* address, unsigned length, Deadline deadline) {
  if (descriptor_ >= 0) close(descriptor_);
  const auto* at = static_cast<const sockaddr*>(address);
  descriptor_ = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor_ < 0) return errno;
  if (connect(descriptor_, at, length) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd waiting{descriptor_, POLLOUT, 0};
  int ready = 0;
  do ready = poll(&waiting, 1, milliseconds_left(deadline));
  while (ready < 0 && errno == EINTR);
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  if (ready < 0 || getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

void Socket::wait_for(short events, Deadline deadline) const {
  for (;;) {
    pollfd waiting{descriptor_, events, 0};
    // A server that drips keeps the socket ready, so the clock is asked at each turn.
    const int left = milliseconds_left(deadline);
    const int ready = left == 0 ? 0 : poll(&waiting, 1, left);
    if (ready > 0) return;
    if (ready == 0 && milliseconds_left(deadline) == 0) fail_late();
    if (ready < 0 && errno != EINTR) fail_unreachable(errno);
  }
}

void Socket::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    wait_for(POLLOUT, deadline);
    const ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && is_again(errno)) continue;
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) fail_closed();
    if (sent < 0) fail_unreachable(errno);
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string_view Socket::receive(Deadline deadline) {
  for (;;) {
    wait_for(POLLIN, deadline);
    const ssize_t got = recv(descriptor_, buffer_, sizeof buffer_, MSG_DONTWAIT);
    if (got > 0) return {buffer_, static_cast<std::size_t>(got)};
    if (got == 0 || errno == ECONNRESET) fail_closed();
    if (!is_again(errno)) fail_unreachable(errno);
  }
}

}  // namespace kiln::remote::redis

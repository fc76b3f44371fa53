#include "team/endpoint.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "kiln/error.hpp"
#include "manifest/limits.hpp"
#include "team/environment.hpp"

namespace kiln::team {
namespace {

constexpr std::array<std::uint8_t, 12> before_ipv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_ipv4(const Endpoint& endpoint) {
  return std::equal(before_ipv4.begin(), before_ipv4.end(), endpoint.ip.begin());
}

bool is_link_local(const Endpoint& endpoint) { return endpoint.ip[0] == 0xfe && (endpoint.ip[1] & 0xc0) == 0x80; }

/// An endpoint as the system takes it.
struct SocketPlace {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;

  SocketPlace() = default;
  explicit SocketPlace(const Endpoint& of) {
    if (is_ipv4(of)) {
      sockaddr_in place{};
      place.sin_family = AF_INET;
      place.sin_port = htons(of.port);
      std::memcpy(&place.sin_addr, of.ip.data() + before_ipv4.size(), sizeof place.sin_addr);
      put(place);
    } else {
      sockaddr_in6 place{};
      place.sin6_family = AF_INET6;
      place.sin6_port = htons(of.port);
      std::memcpy(&place.sin6_addr, of.ip.data(), sizeof place.sin6_addr);
      put(place);
    }
  }
  template <typename Kind>
  void put(const Kind& place) {
    std::memcpy(&storage, &place, sizeof place);
    bytes = sizeof place;
  }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Endpoint endpoint_of(const sockaddr* place) {
  Endpoint endpoint;
  if (place->sa_family == AF_INET) {
    sockaddr_in found{};
    std::memcpy(&found, place, sizeof found);
    std::copy(before_ipv4.begin(), before_ipv4.end(), endpoint.ip.begin());
    std::memcpy(endpoint.ip.data() + before_ipv4.size(), &found.sin_addr, sizeof found.sin_addr);
    endpoint.port = ntohs(found.sin_port);
  } else if (place->sa_family == AF_INET6) {
    sockaddr_in6 found{};
    std::memcpy(&found, place, sizeof found);
    std::memcpy(endpoint.ip.data(), &found.sin6_addr, sizeof found.sin6_addr);
    endpoint.port = ntohs(found.sin6_port);
  }
  return endpoint;
}

void set(int socket, int level, int name, int value) { setsockopt(socket, level, name, &value, sizeof value); }

/// Messages are small, and a host that vanishes sends nothing: the system asks for it where no message does.
void prepare(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);          // seconds of silence
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);          // seconds between questions
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);            // questions
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 25'000);  // milliseconds that what was sent waits for its receipt
}

Descriptor new_socket(int family) {
  return Descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
}

Descriptor listening(SocketPlace place) {
  Descriptor made = new_socket(place.storage.ss_family);
  if (!made) return {};
  set(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // an earlier team's connections hold the port for a while
  if (place.storage.ss_family == AF_INET6) set(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(made.get(), place.get(), place.bytes) != 0 || listen(made.get(), 2 * manifest::most_team_ranks) != 0)
    return {};
  return made;
}

Resolved look_up(const HostAndPort& address, int flags) {
  addrinfo asked{};
  asked.ai_family = AF_UNSPEC;
  asked.ai_socktype = SOCK_STREAM;
  asked.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  Resolved resolved;
  if (const int failed = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &asked, &found);
      failed != 0) {
    resolved.why_none = failed == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(failed);
    return resolved;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    if (const Endpoint endpoint = endpoint_of(each->ai_addr); !is_link_local(endpoint))
      resolved.endpoints.push_back(endpoint);
  if (resolved.endpoints.empty()) resolved.why_none = "it has link-local addresses alone, of which ranks know no scope";
  return resolved;
}

template <typename Ask>
Endpoint end_of(int socket, const Ask& ask) {
  SocketPlace place;
  return ask(socket, place.get(), &place.bytes) == 0 ? endpoint_of(place.get()) : Endpoint{};
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_ipv4(endpoint)) {
    inet_ntop(AF_INET, endpoint.ip.data() + before_ipv4.size(), text.data(), text.size());
    return fmt::format("{}:{}", text.data(), endpoint.port);
  }
  inet_ntop(AF_INET6, endpoint.ip.data(), text.data(), text.size());
  return fmt::format("[{}]:{}", text.data(), endpoint.port);
}

namespace {

bool is_link_local_text(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &address) == 1 && IN6_IS_ADDR_LINKLOCAL(&address);
}

}  // namespace

HostAndPort parse_address(const std::string& text) {
  const auto refuse = [&](const char* why) {
    throw Error(
        ErrorKind::bad_input,
        fmt::format("a team's address is '{}', {}; give HOST:PORT or [IPv6]:PORT, of a port from 1 to 65535 that "
                    "is free on rank 0's host, by TeamOptions::address or KILN_TEAM_ADDRESS",
                    text, why));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) refuse("which has no port");
  HostAndPort address;
  address.host = text.substr(0, colon);
  const bool is_bracketed = address.host.starts_with('[') && address.host.ends_with(']');
  if (is_bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty()) refuse("which has no host");
  if (!is_bracketed && address.host.find(':') != std::string::npos) refuse("whose IPv6 address lacks its brackets");
  if (is_link_local_text(address.host))
    refuse("which is link-local: its scope is the number of an interface, which differs from host to host");
  const char* const begin = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(begin, end, address.port);
  if (error != std::errc() || last != end || address.port == 0) refuse("which has no such port");
  return address;
}

Resolved resolve(const HostAndPort& address) { return look_up(address, 0); }

std::optional<Endpoint> numeric(const HostAndPort& address) {
  const Resolved found = look_up(address, AI_NUMERICHOST);
  return found.endpoints.empty() ? std::nullopt : std::optional(found.endpoints.front());
}

Descriptor listen_at(const Endpoint& endpoint) {
  Descriptor made = listening(SocketPlace(endpoint));
  const bool is_any = endpoint.ip == Endpoint{}.ip;
  if (made || !is_any || errno == EADDRINUSE) return made;
  Endpoint ipv4 = endpoint;  // of a host without IPv6
  std::copy(before_ipv4.begin(), before_ipv4.end(), ipv4.ip.begin());
  return listening(SocketPlace(ipv4));
}

Descriptor connect_to(const Endpoint& endpoint, Clock::time_point end) {
  SocketPlace place(endpoint);
  Descriptor made = new_socket(place.storage.ss_family);
  if (!made) return {};
  prepare(made.get());
  int failed = connect(made.get(), place.get(), place.bytes) == 0 ? 0 : errno;
  if (failed == EINPROGRESS || failed == EINTR) {
    failed = ETIMEDOUT;
    socklen_t bytes = sizeof failed;
    if (wait_until_ready(made.get(), POLLOUT, end)) getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &failed, &bytes);
  }
  // Where nobody listens on this host yet, the system may choose the port itself, and connect the socket to itself.
  if (failed == 0 && own_end(made.get()) == other_end(made.get())) failed = ECONNREFUSED;
  if (failed == 0) return made;
  made = {};
  errno = failed;
  return {};
}

Descriptor accept_at(const Descriptor& listening) {
  Descriptor accepted(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted) prepare(accepted.get());
  return accepted;
}

Endpoint own_end(int socket) { return end_of(socket, getsockname); }
Endpoint other_end(int socket) { return end_of(socket, getpeername); }

}  // namespace kiln::team

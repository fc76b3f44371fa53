// Where a process of another host listens, and the sockets between hosts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "team/clock.hpp"
#include "team/descriptor.hpp"

namespace kiln::team {

/// An IP address and a port. An IPv4 address stands in IPv6's form, ::ffff:a.b.c.d. A link-local address has no scope
/// here, since that is of one host: parse_address() refuses it.
struct Endpoint {
  std::array<std::uint8_t, 16> ip{};  // all 0: any address of this host
  std::uint16_t port = 0;             // 0 to listen at: the system chooses
  bool operator==(const Endpoint&) const = default;
};
std::string to_string(const Endpoint& endpoint);  // "10.0.0.1:29600", "[fd00::1]:29600"

/// "HOST:PORT" as the user gave it, whose host may be a name.
struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;
};
/// Throws Error(bad_input) for a text that is not "HOST:PORT" or "[IPv6]:PORT" with a port of 1 to 65535, and for a
/// link-local address.
HostAndPort parse_address(const std::string& text);
/// The endpoints of a host but those that are link-local, and why there are none. May wait as long as the system's
/// resolver does.
struct Resolved {
  std::vector<Endpoint> endpoints;
  std::string why_none;
};
Resolved resolve(const HostAndPort& address);
/// Nothing for a name.
std::optional<Endpoint> numeric(const HostAndPort& address);

/// Returns a socket that listens, or none, with errno.
Descriptor listen_at(const Endpoint& endpoint);
/// Returns a socket that is connected, or none, with errno: ETIMEDOUT at `end`. A host that vanishes later is noticed
/// within half a minute.
Descriptor connect_to(const Endpoint& endpoint, Clock::time_point end);
/// Accepts who has connected. None, with errno, where nobody has.
Descriptor accept_at(const Descriptor& listening);

/// Of a connected or listening socket; all 0 where there is none.
Endpoint own_end(int socket);
Endpoint other_end(int socket);

}  // namespace kiln::team

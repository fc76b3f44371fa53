// Addresses on this host at which the ranks of a test meet as those of several hosts do.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

#include "team/endpoint.hpp"
#include "team/ranks.hpp"

namespace kiln::test {

/// A port at which nobody listens, and which the system does not give to others.
inline std::uint16_t free_port() {
  static unsigned next = static_cast<unsigned>(getpid());
  for (;;) {
    const auto port = static_cast<std::uint16_t>(12'000 + next++ * 17 % 20'000);
    if (team::listen_at({{}, port})) return port;
  }
}
inline std::string free_address() { return fmt::format("127.0.0.1:{}", free_port()); }

/// Connects to an address of this host, 10 s at most.
inline team::Descriptor knock_at(const std::string& address) {
  const team::Endpoint at = *team::numeric(team::parse_address(address));
  for (const auto end = team::Clock::now() + std::chrono::seconds(10); team::Clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(2)))
    if (team::Descriptor made = team::connect_to(at, end)) return made;
  return {};
}

}  // namespace kiln::test

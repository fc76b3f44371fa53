// Names of hosts to addresses, within a deadline: getaddrinfo(3) knows none, and may take half a minute.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

namespace kiln::remote::redis {

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

/// Returns the addresses of a host, in the system's order; none where it has none or gives no answer by `deadline`. A
/// name is looked up by a thread that outlives a late call and touches nothing of the caller.
std::vector<SocketAddress> resolve(const std::string& host, int port, std::chrono::steady_clock::time_point deadline);

}  // namespace kiln::remote::redis

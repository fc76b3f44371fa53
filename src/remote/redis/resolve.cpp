#include "remote/redis/resolve.hpp"

#include <netdb.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "manifest/keep_loaded.hpp"
#include "manifest/no_signals.hpp"

namespace kiln::remote::redis {
namespace {

std::vector<SocketAddress> addresses_of(const std::string& host, const std::string& port, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &wanted, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.bytes, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
  }
  return addresses;
}

struct Lookup {
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  std::vector<SocketAddress> addresses;
};

}  // namespace

std::vector<SocketAddress> resolve(const std::string& host, int port, std::chrono::steady_clock::time_point deadline) {
  const std::string service = std::to_string(port);
  if (auto numeric = addresses_of(host, service, AI_NUMERICHOST); !numeric.empty()) return numeric;

  const auto lookup = std::make_shared<Lookup>();
  std::thread thread;
  try {
    const manifest::NoSignals no_signals;
    thread = std::thread([lookup, host, service] {
      auto addresses = addresses_of(host, service, AI_ADDRCONFIG);
      const std::scoped_lock lock(lookup->mutex);
      lookup->addresses = std::move(addresses);
      lookup->has_ended = true;
      lookup->ended.notify_all();
    });
  } catch (const std::system_error&) {  // the system has no thread left
    return {};
  }
  std::unique_lock lock(lookup->mutex);
  if (!lookup->ended.wait_until(lock, deadline, [&] { return lookup->has_ended; })) {
    manifest::keep_library_loaded();
    thread.detach();
    return {};
  }
  lock.unlock();
  thread.join();
  return std::move(lookup->addresses);
}

}  // namespace kiln::remote::redis

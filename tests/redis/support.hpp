// A server that says what a test has it say, and what the tests ask of a store.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "redis/server.hpp"
#include "remote/redis.hpp"
#include "remote/redis/connection.hpp"
#include "store/remote.hpp"

namespace kiln::testing {

using store::RemoteFailure;
using Kind = RemoteFailure::Kind;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline constexpr milliseconds slack(1000);  // for a machine that is busy with other tests

inline Clock::time_point within(milliseconds time = std::chrono::seconds(20)) { return Clock::now() + time; }

/// Sends the words as one command by the socket, and returns the answer.
inline remote::redis::Reply ask(const std::string& socket, std::initializer_list<std::string_view> words) {
  remote::redis::Address address;
  address.path = socket;
  remote::redis::Connection connection(address, nullptr, within());
  return connection.ask({remote::redis::command_of(words)}, {std::size_t{64} << 20, 1000}, within()).front();
}

/// A server on a Unix socket that runs `talk` for each connection, one after the other. `talk` returns when it likes.
class Scripted {
 public:
  explicit Scripted(std::function<void(int)> talk) : talk_(std::move(talk)) {
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = address_of(socket());
    REQUIRE(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener_, 16) == 0);
    thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }
  ~Scripted() {
    thread_ = {};
    close(listener_);
  }
  [[nodiscard]] std::string socket() const { return folder_ / "socket"; }
  [[nodiscard]] std::string address() const { return "unix://" + socket(); }

 private:
  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{listener_, POLLIN, 0};
      if (poll(&waiting, 1, 5) <= 0) continue;
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      talk_(connection);
      close(connection);
    }
  }

  std::function<void(int)> talk_;
  ServerFolder folder_;
  int listener_ = -1;
  std::jthread thread_;
};

/// Sends what it can until the other end is closed. Returns how much that was.
inline std::size_t send_all(int connection, std::string_view bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = send(connection, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) break;
    sent += static_cast<std::size_t>(count);
  }
  return sent;
}

/// Waits for something to be read, and reads what is there. Returns false where the other end is closed.
inline bool read_some(int connection) {
  char bytes[4096];
  return recv(connection, bytes, sizeof bytes, 0) > 0;
}

inline const store::RemotePlace place{"1|scale@1|sm_90/mp132|cold", "scale@1 rows=64"};
inline constexpr std::chrono::seconds term(30);

struct Operation {
  const char* name;
  std::function<void(store::RemoteStore&, Clock::time_point)> run;
};
inline std::vector<Operation> operations() {
  return {
      {"get", [](auto& store, auto end) { (void)store.get(place, end); }},
      {"put", [](auto& store, auto end) { store.put(place, "value", std::nullopt, end); }},
      {"list", [](auto& store, auto end) { (void)store.list(place.space, end); }},
      {"spaces", [](auto& store, auto end) { (void)store.spaces(end); }},
      {"get_code", [](auto& store, auto end) { (void)store.get_code("ab", end); }},
      {"put_code", [](auto& store, auto end) { store.put_code("ab", "code", end); }},
      {"claim", [](auto& store, auto end) { store.claim(place, "token", term, end); }},
      {"renew", [](auto& store, auto end) { store.renew(place, "token", term, end); }},
      {"release", [](auto& store, auto end) { store.release(place, "token", end); }},
  };
}

/// Returns the kind and the message of the failure that `work` throws.
struct Told {
  Kind kind;
  std::string message;
};
template <class Work>
Told failure_of(Work&& work) {
  try {
    work();
  } catch (const RemoteFailure& failure) {
    return {failure.kind(), failure.what()};
  }
  FAIL("nothing failed");
  return {};
}

}  // namespace kiln::testing

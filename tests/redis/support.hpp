// A redis-server of a test's own, a server that says what a test has it say, and what the tests ask of a store.
#pragma once

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "remote/redis.hpp"
#include "remote/redis/connection.hpp"
#include "store/remote.hpp"

namespace kiln::testing {

using store::RemoteFailure;
using Kind = RemoteFailure::Kind;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline Clock::time_point within(milliseconds time = std::chrono::seconds(20)) { return Clock::now() + time; }

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kiln-redis-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// Debian's package redis-tools has the server by the name of another program, which its own first word makes a server.
inline std::string server_program() {
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "/usr/bin");
  std::vector<std::string> all;
  for (std::string folder; std::getline(folders, folder, ':');) all.push_back(folder);
  for (const char* name : {"redis-server", "valkey-server", "redis-check-rdb"})
    for (const std::string& folder : all)
      if (const std::string program = folder + "/" + name; access(program.c_str(), X_OK) == 0) return program;
  return {};
}

inline int free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(bind(descriptor, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  close(descriptor);
  return ntohs(address.sin_port);
}

/// Sends the words as one command by the socket, and returns the answer.
inline remote::redis::Reply ask(const std::string& socket, std::initializer_list<std::string_view> words) {
  remote::redis::Address address;
  address.path = socket;
  remote::redis::Connection connection(address, nullptr, within());
  return connection.ask({remote::redis::command_of(words)}, {std::size_t{64} << 20, 1000}, within()).front();
}

/// A server with a Unix socket in a folder of its own, and nothing on disk. Where there is none to be run, the process
/// ends as skipped.
class Server {
 public:
  explicit Server(const std::vector<std::string>& settings = {}) : settings_(settings) { start(); }
  ~Server() { stop(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void start() {
    const std::string program = server_program();
    if (program.empty()) {
      MESSAGE("The tests with a Redis server are skipped: none is on the path (Debian's package redis-tools has it).");
      std::exit(77);
    }
    std::vector<std::string> words{program.ends_with("redis-check-rdb") ? "redis-server" : program,
                                   "--unixsocket",
                                   socket(),
                                   "--save",
                                   "",
                                   "--appendonly",
                                   "no",
                                   "--dir",
                                   folder_ / "",
                                   "--logfile",
                                   folder_ / "log"};
    if (std::find(settings_.begin(), settings_.end(), "--port") == settings_.end())
      words.insert(words.end(), {"--port", "0"});
    words.insert(words.end(), settings_.begin(), settings_.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execv(program.c_str(), arguments.data());
      _exit(127);
    }
    wait_until_it_answers();
  }
  void stop() {
    if (process_ <= 0) return;
    signal(SIGCONT);
    signal(SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  void signal(int number) const { kill(process_, number); }
  [[nodiscard]] std::string socket() const { return folder_ / "socket"; }
  [[nodiscard]] std::string address() const { return "unix://" + socket(); }

 private:
  void wait_until_it_answers() const {
    for (const auto end = within(); Clock::now() < end && waitpid(process_, nullptr, WNOHANG) == 0;
         std::this_thread::sleep_for(milliseconds(5))) {
      try {
        ask(socket(), {"PING"});  // be the answer that it wants a password
        return;
      } catch (const RemoteFailure&) {
      }
    }
    FAIL("the server of a test did not start");
  }

  std::vector<std::string> settings_;
  TemporaryFolder folder_;
  pid_t process_ = -1;
};

/// A server on a Unix socket that runs `talk` for each connection, one after the other. `talk` returns when it likes.
class Scripted {
 public:
  explicit Scripted(std::function<void(int)> talk) : talk_(std::move(talk)) {
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket().copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
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
  TemporaryFolder folder_;
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

// A redis-server of a test's own.
#pragma once

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace kiln::testing {

class ServerFolder {
 public:
  ServerFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kiln-redis-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~ServerFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ServerFolder(const ServerFolder&) = delete;
  ServerFolder& operator=(const ServerFolder&) = delete;
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

/// What the server says on its way to an end, given these words.
inline std::string server_says(const std::string& words) {
  const std::string program = server_program();
  const std::string line =
      "exec -a redis-server '" + (program.empty() ? "true" : program) + "' " + words + " 2>&1 </dev/null";
  FILE* const pipe = popen(("bash -c \"" + line + "\"").c_str(), "r");
  std::string said;
  char bytes[4096];
  for (std::size_t count = 0; pipe != nullptr && (count = fread(bytes, 1, sizeof bytes, pipe)) > 0;)
    said.append(bytes, count);
  if (pipe != nullptr) pclose(pipe);
  return said;
}

/// "Redis server v=7.0.15 sha=...": 7. Valkey's first one, 7.2, has all that Redis 7 has.
inline int server_version() {
  const std::string said = server_says("--version");
  const std::size_t at = said.find("v=");
  return at == std::string::npos ? 0 : std::atoi(said.c_str() + at + 2);
}

/// Servers of Python packages are built without. They call the option a bad one, or say that they find no TLS.
inline bool server_has_tls() {
  const std::string said = server_says("--tls-port 1 --port 0");  // without a certificate none begins
  return said.find("'tls-port") == std::string::npos && said.find("Failed finding TLS") == std::string::npos;
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

inline sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
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
  /// Returns the answer to a command as it is typed, in the protocol's text; nothing where no server answers.
  [[nodiscard]] std::string tell(const std::string& command) const {
    const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = address_of(socket());
    const std::string line = command + "\r\nQUIT\r\n";  // the server closes behind the answer
    std::string answer;
    if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      send(descriptor, line.data(), line.size(), MSG_NOSIGNAL);
    char bytes[4096];
    for (ssize_t count = 0; (count = recv(descriptor, bytes, sizeof bytes, 0)) > 0;)
      answer.append(bytes, static_cast<std::size_t>(count));
    close(descriptor);
    return answer;
  }
  [[nodiscard]] std::string socket() const { return folder_ / "socket"; }
  [[nodiscard]] std::string address() const { return "unix://" + socket(); }

 private:
  void wait_until_it_answers() const {
    for (int waits = 0; waits < 4000 && waitpid(process_, nullptr, WNOHANG) == 0; ++waits) {
      if (!tell("PING").empty()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL("the server of a test did not start");
  }

  std::vector<std::string> settings_;
  ServerFolder folder_;
  pid_t process_ = -1;
};

}  // namespace kiln::testing

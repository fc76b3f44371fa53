// A stream to a server: connected, written and read within deadlines. No call raises SIGPIPE.
#pragma once

#include <chrono>
#include <string_view>

#include "store/remote.hpp"

namespace kiln::remote::redis {

using Deadline = store::RemoteStore::Deadline;
using Failure = store::RemoteFailure;

class Wire {
 public:
  virtual ~Wire() = default;
  virtual void send(std::string_view bytes, Deadline deadline) = 0;
  /// Waits for at least one byte. Returns what came, which is valid until the next call.
  virtual std::string_view receive(Deadline deadline) = 0;
};

/// Throws RemoteFailure: slow at the deadline, unreachable for each other failure.
class Socket final : public Wire {
 public:
  /// Connects to one of the host's addresses; where `path` is not empty, to the Unix socket there.
  Socket(const std::string& host, int port, const std::string& path, Deadline deadline);
  ~Socket() override;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  void send(std::string_view bytes, Deadline deadline) override;
  std::string_view receive(Deadline deadline) override;

 private:
  void connect_to_path(const std::string& path, Deadline deadline);
  void connect_to_host(const std::string& host, int port, Deadline deadline);
  /// Returns 0, or the errno of an attempt that failed.
  int connect_to(const void* address, unsigned length, Deadline deadline);
  void wait_for(short events, Deadline deadline) const;

  int descriptor_ = -1;
  char buffer_[std::size_t{16} << 10];
};

}  // namespace kiln::remote::redis

// remote/redis.hpp's store: operations as commands of Redis.
#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remote/redis/connection.hpp"
#include "store/remote.hpp"

namespace kiln::remote::redis {

class Store final : public store::RemoteStore {
 public:
  using Place = store::RemotePlace;
  explicit Store(Address address);
  [[nodiscard]] std::string name() const override { return "the Redis server"; }
  [[nodiscard]] std::optional<std::string> get(const Place& place, Deadline deadline) override;
  bool put(const Place& place, std::string_view value, const std::optional<std::string>& replaces,
           Deadline deadline) override;
  [[nodiscard]] std::vector<std::string> list(std::string_view space, Deadline deadline) override;
  [[nodiscard]] std::vector<std::string> spaces(Deadline deadline) override;
  [[nodiscard]] std::optional<std::string> get_code(std::string_view key, Deadline deadline) override;
  void put_code(std::string_view key, std::string_view value, Deadline deadline) override;
  bool claim(const Place& place, std::string_view token, std::chrono::seconds term, Deadline deadline) override;
  bool renew(const Place& place, std::string_view token, std::chrono::seconds term, Deadline deadline) override;
  void release(const Place& place, std::string_view token, Deadline deadline) override;

 private:
  /// Calls `work` with a connection, and again with a new one where the server had closed one kept from before. So work
  /// must be such that a second time does no harm.
  template <class Work>
  auto with_connection(Deadline deadline, Work&& work);
  template <class Work>
  auto attempt(Deadline deadline, Work&& work);

  [[nodiscard]] std::optional<std::string> value_at(const std::string& command, Deadline deadline);
  [[nodiscard]] std::vector<std::string> texts_of(const std::string& command, Deadline deadline);
  /// Runs a script that answers 1 or 0. Returns nothing where the server lets this user run none.
  [[nodiscard]] std::optional<bool> run(Connection& connection, const std::string& script, Deadline deadline);
  bool change_claim(const std::string& key, std::string_view token, const std::string& script,
                    const std::string& change, Deadline deadline);

  Address address_;
  std::optional<TlsContext> tls_;
  std::unique_ptr<Connection> connection_;
  pid_t owner_ = getpid();
  bool may_run_scripts_ = true;
};

}  // namespace kiln::remote::redis

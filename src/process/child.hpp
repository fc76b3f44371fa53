// One kiln-worker as its owner holds it: begun, spoken to over one end of a socket pair, ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "process/channel.hpp"

namespace kiln::process {

class Child {
 public:
  /// Runs `program` and waits for its greeting. Throws Error(io), which names it, when it cannot be run, does not greet (so it is
  /// no kiln-worker) or is one of another version.
  explicit Child(const std::filesystem::path& program);
  /// Ends it; but a fork of the owner only lets go of it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Sends `message` and waits for its answer. After anything but `received` it is to be stopped.
  Channel::State ask(const nlohmann::json& message, nlohmann::json& answer, std::chrono::milliseconds patience);
  /// Whether it has ended by itself since it last answered.
  [[nodiscard]] bool gone() const;
  /// Ends what another thread waits for: its ask() returns `closed`.
  void interrupt() noexcept;
  /// Ends it, and says how it had ended if it had: "was ended by signal 11 (Segmentation fault)", else "was stopped".
  std::string stop();

 private:
  void greet(const std::filesystem::path& program);

  pid_t owner_;
  pid_t process_ = 0;
  std::optional<Channel> channel_;
};

}  // namespace kiln::process

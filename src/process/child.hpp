// A kiln-worker child process, as its parent sees it: finding the program, spawning it, requests and answers, ending
// it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "process/channel.hpp"

namespace kiln::process {

struct FoundWorker {
  std::filesystem::path program;     // empty when there is none
  std::vector<std::string> refused;  // those that were found before it and are not run, with the reason
};
/// Returns the first of: `chosen`; $KILN_WORKER ("none": no worker); kiln-worker of worker_places. One that was not
/// named is run only if it, its folder and the folder that a link leads to belong to this user, root or the owner of
/// this library, and nobody else may write them. Nor is it run where it says that it was built of other sources.
FoundWorker look_for_worker(const std::filesystem::path& chosen);
inline std::filesystem::path find_worker(const std::filesystem::path& chosen) {
  return look_for_worker(chosen).program;
}

/// Where a worker is looked for, in this order: beside the library and where it is installed seen from there, beside
/// the running program and likewise, where Kiln was installed. The library comes first because the program may be
/// another's, such as an interpreter, with the worker of another Kiln beside it.
std::vector<std::filesystem::path> worker_places(const std::filesystem::path& library,
                                                 const std::filesystem::path& program);

/// Returns the variables of `all` that a worker gets: each, but with raised rights (manifest::has_raised_rights) only
/// those that say which GPUs there are. The worker itself has no raised rights, and would obey the others.
std::vector<char*> worker_environment(char** all, bool has_raised_rights);

/// The system has no process or descriptor for a worker now. Its text names the limit.
class Refused : public Error {
 public:
  explicit Refused(const std::string& message) : Error(ErrorKind::io, message) {}
};

class Child {
 public:
  /// Spawns `program` and waits for its greeting. Throws Refused; and Error(io), naming the program, when it cannot be
  /// run, sends no greeting (so is no kiln-worker) or was built of other sources.
  explicit Child(const std::filesystem::path& program);
  /// Stops the process. In a fork of the parent the destructor only closes the socket.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Sends `message` and waits for the answer. After any result but `received` the caller must call stop().
  Channel::Outcome ask(const nlohmann::json& message, nlohmann::json& answer, std::chrono::milliseconds timeout);
  /// Whether the process has ended by itself since its last answer.
  [[nodiscard]] bool gone() const;
  /// Makes an ask() in another thread return `closed`.
  void interrupt() noexcept;
  /// Ends the process. Returns how it had ended, "was ended by signal 11 (Segmentation fault)", or "was stopped" if it
  /// ran.
  std::string stop();
  /// Whether stop() found it ended by a signal that programs do not raise themselves: somebody, or the system for want
  /// of memory, killed it.
  [[nodiscard]] bool was_killed() const noexcept { return was_killed_; }

 private:
  void begin(const std::filesystem::path& program);
  /// Returns false where the process was killed from outside before it greeted, and another may be begun.
  bool greet(const std::filesystem::path& program, bool may_try_again);

  pid_t owner_;
  pid_t process_ = 0;
  bool was_killed_ = false;
  std::optional<Channel> channel_;
};

}  // namespace kiln::process

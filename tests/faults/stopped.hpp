// A process that holds something and is then stopped.
#pragma once

#include <csignal>
#include <string>

#include "store/support.hpp"

namespace kiln::faults {

/// Does `work` in a child, which keeps what that returns and is stopped. Killed at the end.
class Stopped {
 public:
  template <class Work>
  explicit Stopped(Work work)
      : process_(store::in_child([&]() -> bool {
          const auto held = work();
          raise(SIGSTOP);
          _exit(0);
        })) {
    int status = 0;
    REQUIRE(waitpid(process_, &status, WUNTRACED) == process_);
    REQUIRE(WIFSTOPPED(status));
  }
  ~Stopped() {
    kill(process_, SIGKILL);
    store::exit_status(process_);
  }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;
  [[nodiscard]] std::string name() const { return "process " + std::to_string(process_) + " ("; }

 private:
  pid_t process_;
};

}  // namespace kiln::faults

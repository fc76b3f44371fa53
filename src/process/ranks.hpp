// The ranks of a command, as forks of it: begun together, ended together.
#pragma once

#include <sys/types.h>
#include <csignal>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace kiln::process {

/// How the ranks of a command ended.
struct RanksEnd {
  int status = 0;                // the first that is not 0, by rank; 128 and the signal for a rank that one ended
  std::string why;               // "rank 1 was ended by signal 9 (Killed)", where this process did not send it
  bool was_interrupted = false;  // this process was told to end, by SIGINT or SIGTERM
};

/// Forks the process. Make it before the first thread, and before the driver is opened.
///
/// Each child has a process group of its own, so that Ctrl-C at the terminal reaches this process alone. Children end
/// with this process, however it ends.
class Ranks {
 public:
  /// `grace`: for ranks to end by themselves once another one has failed. Throws Error(io) where a fork fails, having
  /// ended those that were begun.
  explicit Ranks(int count, std::chrono::milliseconds grace = std::chrono::seconds(5));
  /// Of the parent: ends the ranks that still run.
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// This process's rank; nothing in the parent.
  [[nodiscard]] std::optional<int> rank() const noexcept { return rank_; }
  /// Of the parent: returns once all ranks have ended. The first SIGINT or SIGTERM goes to rank 0, which decides; the
  /// second ends all. Once one rank has failed, the others are ended after the grace.
  RanksEnd wait();

 private:
  struct Process {
    pid_t id = 0;  // 0 once it has ended
    int status = 0;
    bool was_told = false;  // to end, by this process
  };
  void begin(int rank);
  void become(int rank, pid_t parent);
  /// Notes the ranks that have ended since. Returns whether one of them failed.
  bool reap();
  [[nodiscard]] bool is_any_left() const;
  void tell(Process& process, int signal);
  void end_all() noexcept;
  [[nodiscard]] RanksEnd end() const;

  std::chrono::milliseconds grace_;
  sigset_t awaited_{}, before_{};
  std::optional<int> rank_;
  std::vector<Process> processes_;  // by rank; empty in a child
  bool was_interrupted_ = false;
};

}  // namespace kiln::process

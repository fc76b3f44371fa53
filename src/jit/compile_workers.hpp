// Compiles in worker processes: a crash, hang or lack of memory fails that compile alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "jit/compile_pool.hpp"
#include "process/child.hpp"

namespace kiln::jit {

/// Thread-safe. Each concurrent caller uses a process of its own. Idle processes are reused; dead ones are replaced.
class CompileWorkers {
 public:
  explicit CompileWorkers(CompileSettings settings) : settings_(std::move(settings)) {}

  /// Throws what compile() throws; Error(compile_failed) when the process died or timed out, with the reason; Error(io)
  /// when no process can be started, or its answer cannot be read. Where the system refuses a further process, waits
  /// for one that compiles. A process that was killed from outside is replaced once.
  Cubin compile(const manifest::Digest& key, const Specialisation& specialisation);
  /// Makes present and later compiles throw Error(interrupted).
  void interrupt();
  /// Ends the processes that were idle for CompileSettings::idle. Returns whether an idle process is left.
  bool end_idle();

 private:
  using Clock = std::chrono::steady_clock;
  struct Idle {
    std::unique_ptr<process::Child> child;
    Clock::time_point since;
  };

  /// A process that compiles. It ends with the turn unless it was given back.
  class Turn {
   public:
    explicit Turn(CompileWorkers& workers);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    [[nodiscard]] process::Child& child() const noexcept { return *child_; }
    /// From here on interrupt() leaves the process alone.
    void leave() noexcept;
    void give_back();

   private:
    CompileWorkers& workers_;
    std::unique_ptr<process::Child> child_;
  };

  /// Each returns the process of a turn that has begun, or null.
  std::unique_ptr<process::Child> take_idle();
  std::unique_ptr<process::Child> spawn();
  void end_turn() noexcept;
  bool is_interrupted() const;
  [[noreturn]] void fail(const Specialisation& specialisation, const std::string& how) const;

  const CompileSettings settings_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable turn_ended_;
  bool interrupted_ = false;
  int turns_ = 0, spawning_ = 0;
  std::int64_t ended_turns_ = 0;
  std::vector<Idle> idle_;  // the most recently used at the back
  std::set<process::Child*> busy_;
};

}  // namespace kiln::jit

// Compiles in processes: a template that crashes the compiler, never ends or takes all memory costs that compile alone.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "jit/compile_pool.hpp"
#include "process/child.hpp"

namespace kiln::jit {

/// Thread-safe: as many processes as there are callers at once. One is begun where none is idle, reused, and replaced when it dies.
class CompileWorkers {
 public:
  explicit CompileWorkers(CompileSettings settings) : settings_(std::move(settings)) {}

  /// Throws what compile() throws; Error(compile_failed) that says how when the process died of it, or was not done in time;
  /// Error(io) when no process can be begun.
  Cubin compile(const manifest::Digest& key, const Specialisation& specialisation);
  /// Compiles under way, and those that come, throw Error(interrupted).
  void interrupt();
  /// Ends the processes that were idle for settings.idle; whether any is left.
  bool end_idle();

 private:
  using Clock = std::chrono::steady_clock;
  struct Idle {
    std::unique_ptr<process::Child> child;
    Clock::time_point since;
  };

  std::unique_ptr<process::Child> take();
  std::unique_ptr<process::Child> take_idle();
  void let_go(process::Child& child);
  void give_back(std::unique_ptr<process::Child> child);
  [[noreturn]] void fail(const Specialisation& specialisation, const std::string& how) const;

  const CompileSettings settings_;
  mutable std::mutex mutex_;  // guards what follows
  bool interrupted_ = false;
  std::vector<Idle> idle_;  // the last used at the back
  std::set<process::Child*> busy_;
};

}  // namespace kiln::jit

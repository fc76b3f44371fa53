// Compiles in worker processes: a crash, hang or lack of memory fails that compile alone.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "jit/compile_pool.hpp"
#include "process/child.hpp"

namespace kiln::jit {

/// Thread-safe. Each concurrent caller uses a process of its own. Idle processes are reused; dead ones are replaced.
class CompileWorkers {
 public:
  explicit CompileWorkers(CompileSettings settings) : settings_(std::move(settings)) {}

  /// Throws what compile() throws; Error(compile_failed) when the process died or timed out, with the reason; Error(io) when no process
  /// can be started.
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

  std::unique_ptr<process::Child> take();
  std::unique_ptr<process::Child> take_idle();
  void let_go(process::Child& child);
  void give_back(std::unique_ptr<process::Child> child);
  [[noreturn]] void fail(const Specialisation& specialisation, const std::string& how) const;

  const CompileSettings settings_;
  mutable std::mutex mutex_;  // guards the members below
  bool interrupted_ = false;
  std::vector<Idle> idle_;  // the most recently used at the back
  std::set<process::Child*> busy_;
};

}  // namespace kiln::jit

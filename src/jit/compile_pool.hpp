// Compiles specialisations in parallel, each cubin key once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>

#include "jit/specialisation.hpp"

namespace kiln::jit {

/// A compile that has ended.
struct CompileEnd {
  const Specialisation& specialisation;
  std::chrono::milliseconds took;
  const char* failure;  // null: it succeeded
  bool is_spare;        // Urgency::spare
};

struct CompileSettings {
  int workers = 0;                  // parallel compiles; 0: one for each core that this process may use
  int spare = -1;                   // those of Urgency::spare; -1: half of `workers`, and at least one
  std::filesystem::path program{};  // kiln-worker: compiles run in processes; empty: in threads
  std::int64_t kept_bytes = std::int64_t{64} << 20;  // of compiles that have ended, for those who ask for them again
  // Of worker processes:
  std::chrono::milliseconds limit{120'000};           // for one compile
  std::int64_t memory_bytes = std::int64_t{4} << 30;  // for one process, beyond its memory at start; 0: no limit
  bool low_priority = false;                          // nice 19
  std::chrono::milliseconds idle{30'000};             // an idle process ends after this time
  // Called on the thread that compiled, after each compile but one that the pool's end interrupted. Must not throw.
  std::function<void(const CompileEnd&)> on_end{};
  bool never = false;  // nobody compiles: answer::Cubins asks for nothing
};
enum class Urgency {
  now,
  ahead,  // begins only where no other compile waits, and keeps at most half of the workers busy
  // Begins only where no compile waits that is `now`. Runs beside the workers, at most CompileSettings::spare at a
  // time, in a process of low priority
  spare
};
/// Returns `workers`, or for 0 the cores that this process may use.
int compiles_at_once(int workers) noexcept;

/// Thread-safe. Starts threads and processes on demand, at most one for each compile under way. Where the system
/// refuses further ones, those that run do the work; where none runs, submit() compiles on the caller's thread, and
/// Error(io) names the limit on processes.
class CompilePool {
 public:
  explicit CompilePool(const CompileSettings& settings);
  /// A pool that compiles in threads.
  explicit CompilePool(int workers = 0) : CompilePool(CompileSettings{.workers = workers}) {}
  /// Drops compiles that have not begun, stops those in processes, and waits for those in threads.
  ~CompilePool();
  /// `key`: the cubin key; calls with equal keys share one compile, of the highest urgency that was asked for. One that
  /// has ended is shared while CompileSettings::kept_bytes holds it: those asked for longest ago leave first. One that
  /// is asked for ahead alone may never begin, as in a pool of one worker: who waits for it asks for it again. The
  /// future throws what compile() throws. In a worker process it also throws Error(compile_failed) after a crash, a
  /// timeout or lack of memory, and Error(io) when no process can be started.
  std::shared_future<Cubin> submit(const manifest::Digest& key, Specialisation specialisation,
                                   Urgency urgency = Urgency::now);
  /// Drops compiles that have not begun. Their futures throw Error(interrupted).
  void cancel();
  /// cancel(), and stops compiles in worker processes for good: present and later ones throw Error(interrupted).
  void interrupt();
  [[nodiscard]] std::size_t at_once() const noexcept;
  [[nodiscard]] std::size_t spare_at_once() const noexcept;    // 0 where compiles run in threads, or never
  [[nodiscard]] bool may_compile() const noexcept;             // whatever NVRTC there is
  [[nodiscard]] std::int64_t compiled() const noexcept;        // compiles that ended, failed ones included
  [[nodiscard]] std::int64_t compiled_spare() const noexcept;  // those of Urgency::spare among them
  /// Whether the calling thread compiles for a pool, as within CompileSettings::on_end. It must not destroy that pool,
  /// which would wait for it.
  [[nodiscard]] static bool is_compiling() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::jit

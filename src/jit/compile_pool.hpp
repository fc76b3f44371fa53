// Compiles many specialisations at once; one that is asked for twice is compiled once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>

#include "jit/specialisation.hpp"

namespace kiln::jit {

struct CompileSettings {
  int workers = 0;                // compiles at once; 0: one for each core that this process may use
  std::filesystem::path program;  // kiln-worker: each compile in a process; empty: in a thread of this one
  // Of processes:
  std::chrono::milliseconds limit{120'000};           // one compile
  std::int64_t memory_bytes = std::int64_t{4} << 30;  // of one process, beyond what it begins with; 0: no limit
  bool low_priority = false;                          // nice 19
  std::chrono::milliseconds idle{30'000};             // one that was asked for nothing for so long is ended
};
/// The compiles at once that `workers` asks for.
int compiles_at_once(int workers) noexcept;

/// Threads and processes are begun when there is something to compile, and no more than there are compiles.
class CompilePool {
 public:
  explicit CompilePool(const CompileSettings& settings);
  /// In threads.
  explicit CompilePool(int workers = 0) : CompilePool(CompileSettings{workers, {}}) {}
  /// Drops what has not begun, stops what is under way in processes, and waits for what is under way in threads.
  ~CompilePool();
  /// The future throws what compile() throws. `key` is the cubin key: two asks with one key share one compile. In a process a compile that
  /// crashes the compiler, is not done in time or takes too much memory throws Error(compile_failed) with the reason; and one for which no
  /// process can be begun throws Error(io).
  std::shared_future<Cubin> submit(const manifest::Digest& key, Specialisation specialisation);
  /// Drops what has not begun; their futures throw Error(interrupted).
  void cancel();
  /// For the end: that, and what is under way in processes, or is asked for later, throws the same.
  void interrupt();
  [[nodiscard]] std::size_t at_once() const noexcept;
  [[nodiscard]] std::int64_t compiled() const noexcept;  // compiles that ended, well or badly

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::jit

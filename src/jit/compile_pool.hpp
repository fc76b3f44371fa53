// Compiles many specialisations at once; one that is asked for twice is compiled once.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>

#include "jit/specialisation.hpp"

namespace kiln::jit {

class CompilePool {
 public:
  /// workers 0: one for each core that this process may use.
  explicit CompilePool(int workers = 0);
  ~CompilePool();  // waits for compiles under way, drops those not begun
  /// The future throws what compile() throws. `key` is the cubin key: two asks with one key share one compile.
  std::shared_future<Cubin> submit(const spec::Digest& key, Specialisation specialisation);
  /// Drops what has not begun; their futures throw Error(interrupted).
  void cancel();
  [[nodiscard]] std::int64_t compiled() const noexcept;  // compiles that ended, well or badly

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::jit

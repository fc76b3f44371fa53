// Threads and processes that the system refuses, as at RLIMIT_NPROC, by which root is not bound.
#pragma once

namespace kiln::faults {

/// While it lives, one pthread_create() or posix_spawn() after the first `allowed`, or each, fails with EAGAIN. One at a time.
class Refusals {
 public:
  enum class Of { threads, processes };
  enum class Which { one, each };
  explicit Refusals(Of of, Which which = Which::each, int allowed = 0);
  ~Refusals();
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;
  /// How many were refused so far.
  [[nodiscard]] int count() const noexcept;
};

}  // namespace kiln::faults

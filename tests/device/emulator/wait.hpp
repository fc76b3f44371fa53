// How a thread waits: by a condition that the scheduler looks at, and that a report of a deadlock can name.
#pragma once

#include <string>

namespace emulator {

/// Lives on the stack of the thread that waits, which may be dropped: derived types hold nothing that needs a destructor.
struct Wait {
  [[nodiscard]] virtual bool over() = 0;
  /// What is waited for.
  [[nodiscard]] virtual std::string text() const = 0;

 protected:
  ~Wait() = default;
};

/// Within a thread: returns when the wait is over; at once where it is already.
void await(Wait&& wait);

/// Within a thread: lets others go first.
void pause();

/// Within a thread: now and then, by the launch's seed, lets others go first.
void maybe_pause();

}  // namespace emulator

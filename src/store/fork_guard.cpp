#include "store/fork_guard.hpp"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace kiln::store {
namespace {

constexpr auto patience = std::chrono::seconds(5);  // as long as a writer waits for another

thread_local int guards = 0;  // guards of this thread, one inside the other

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;   // threads that have a guard
  int forking = 0;  // threads that wait for the others to come out; nobody enters meanwhile
};

Gate& gate();

int others_inside() { return gate().inside - (guards > 0 ? 1 : 0); }

// The mutex stays locked across the fork, so that the child, whose only thread this one is, finds the counts as they are.
void before_fork() {
  std::unique_lock lock(gate().mutex);
  ++gate().forking;
  gate().changed.wait_for(lock, patience, [] { return others_inside() == 0; });
  lock.release();
}

void after_fork_in_parent() {
  --gate().forking;
  gate().mutex.unlock();
  gate().changed.notify_all();
}

// Threads that waited are not there any more, and the condition is not to wait for them.
void after_fork_in_child() {
  gate().forking = 0;
  gate().inside = guards > 0 ? 1 : 0;
  std::construct_at(&gate().changed);
  gate().mutex.unlock();
}

// Never destroyed: threads may outlive the end of main.
Gate& gate() {
  static Gate* const only = [] {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return new Gate;
  }();
  return *only;
}

}  // namespace

ForkGuard::ForkGuard() {
  if (guards++ > 0) return;
  Gate& shared = gate();
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [&] { return shared.forking == 0; });
  ++shared.inside;
}

ForkGuard::~ForkGuard() {
  if (--guards > 0) return;
  Gate& shared = gate();
  const std::lock_guard lock(shared.mutex);
  if (--shared.inside == 0 || shared.forking > 0) shared.changed.notify_all();
}

}  // namespace kiln::store

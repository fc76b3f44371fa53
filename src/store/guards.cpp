#include "store/guards.hpp"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace kiln::store {

void close_parents_descriptors() noexcept;

namespace {

constexpr auto longest_wait = std::chrono::seconds(5);  // as usual_lock_wait of sqlite.hpp

thread_local int guards = 0;  // nested guards of this thread

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;   // threads that have a guard
  int forking = 0;  // threads in fork(); no thread gets its first guard meanwhile
  ParentsDescriptor* first = nullptr;
};

Gate& gate();

int others_inside() { return gate().inside - (guards > 0 ? 1 : 0); }

// The mutex stays locked across the fork, so that the counts are consistent in the child, which has this thread only.
void before_fork() {
  std::unique_lock lock(gate().mutex);
  ++gate().forking;
  gate().changed.wait_for(lock, longest_wait, [] { return others_inside() == 0; });
  lock.release();
}

void after_fork_in_parent() {
  --gate().forking;
  gate().mutex.unlock();
  gate().changed.notify_all();
}

// The child has no threads that wait, so the condition variable begins anew.
void after_fork_in_child() {
  gate().forking = 0;
  gate().inside = guards > 0 ? 1 : 0;
  std::construct_at(&gate().changed);
  close_parents_descriptors();
  gate().mutex.unlock();
}

// Never destroyed: threads may run after the end of main().
Gate& gate() {
  static Gate* const only = [] {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return new Gate;
  }();
  return *only;
}

sigset_t only_the_limit() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

std::unique_lock<std::mutex> lock_within(std::mutex& mutex, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds between{1};
  if (patience >= longest_wait) return std::unique_lock(mutex);
  const auto end = std::chrono::steady_clock::now() + patience;
  std::unique_lock lock(mutex, std::try_to_lock);
  while (!lock.owns_lock() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(between);
    (void)lock.try_lock();
  }
  return lock;
}

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

// The gate's mutex is locked by fork(). The list stays as it is, since the child may destroy what it inherited.
void close_parents_descriptors() noexcept {
  for (ParentsDescriptor* each = gate().first; each != nullptr; each = each->after_)
    if (each->number_ >= 0) close(std::exchange(each->number_, -1));
}

ParentsDescriptor::ParentsDescriptor(int number) noexcept : number_(number) {
  Gate& shared = gate();
  const std::lock_guard lock(shared.mutex);
  after_ = shared.first;
  if (after_ != nullptr) after_->before_ = this;
  shared.first = this;
}

ParentsDescriptor::~ParentsDescriptor() {
  Gate& shared = gate();
  const std::lock_guard lock(shared.mutex);
  if (number_ >= 0) close(number_);
  (before_ != nullptr ? before_->after_ : shared.first) = after_;
  if (after_ != nullptr) after_->before_ = before_;
}

SizeLimitGuard::SizeLimitGuard() noexcept {
  const sigset_t limit = only_the_limit();
  sigset_t before;
  sigemptyset(&before);
  pthread_sigmask(SIG_BLOCK, &limit, &before);
  blocked_before_ = sigismember(&before, SIGXFSZ) == 1;
  if (!blocked_before_) return;
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  pending_before_ = sigismember(&pending, SIGXFSZ) == 1;
}

SizeLimitGuard::~SizeLimitGuard() {
  const sigset_t limit = only_the_limit();
  const timespec at_once{};
  if (!pending_before_) sigtimedwait(&limit, nullptr, &at_once);
  if (!blocked_before_) pthread_sigmask(SIG_UNBLOCK, &limit, nullptr);
}

}  // namespace kiln::store

#include "jit/compile_pool.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <stop_token>
#include <thread>
#include <utility>

#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

struct Task {
  spec::Digest key;
  Specialisation specialisation;
  std::promise<Cubin> promise;
};

int usable_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace

struct CompilePool::State {
  mutable std::mutex mutex;
  std::condition_variable_any work;
  std::deque<Task> waiting;
  std::map<spec::Digest, std::shared_future<Cubin>> asked;
  std::int64_t compiled = 0;
  std::vector<std::jthread> workers;  // last: they end before what they use

  explicit State(int count) {
    for (int i = 0; i < count; ++i) {
      workers.emplace_back([this](const std::stop_token& stop) { serve(stop); });
    }
  }

  void serve(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (work.wait(lock, stop, [this] { return !waiting.empty(); })) {
      Task task = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      run(task);
      lock.lock();
    }
  }

  /// Counted before the future is ready, so that who has waited for every future reads the full count.
  void run(Task& task) {
    const auto count = [this] {
      const std::lock_guard lock(mutex);
      ++compiled;
    };
    try {
      Cubin cubin = compile(task.specialisation);
      count();
      task.promise.set_value(std::move(cubin));
    } catch (const Error& error) {
      count();
      if (error.kind() != ErrorKind::compile_failed) forget(task.key);
      task.promise.set_exception(std::current_exception());
    } catch (...) {
      count();
      forget(task.key);
      task.promise.set_exception(std::current_exception());
    }
  }

  /// What failed for the machine's sake, such as its memory, may succeed when it is asked for again.
  void forget(const spec::Digest& key) {
    const std::lock_guard lock(mutex);
    asked.erase(key);
  }

  /// Takes out what has not begun; a later ask for the same key begins anew.
  std::deque<Task> drop_waiting() {
    const std::lock_guard lock(mutex);
    for (const Task& task : waiting) asked.erase(task.key);
    return std::exchange(waiting, {});
  }
};

CompilePool::CompilePool(int workers) : state_(std::make_unique<State>(workers > 0 ? workers : usable_cores())) {}

CompilePool::~CompilePool() {
  for (std::jthread& worker : state_->workers) worker.request_stop();
  cancel();
}

std::shared_future<Cubin> CompilePool::submit(const spec::Digest& key, Specialisation specialisation) {
  const std::lock_guard lock(state_->mutex);
  if (const auto known = state_->asked.find(key); known != state_->asked.end()) return known->second;
  Task task{key, std::move(specialisation), {}};
  std::shared_future<Cubin> future = task.promise.get_future().share();
  state_->asked.emplace(key, future);
  state_->waiting.push_back(std::move(task));
  state_->work.notify_one();
  return future;
}

void CompilePool::cancel() {
  for (Task& task : state_->drop_waiting()) {
    task.promise.set_exception(std::make_exception_ptr(
        Error(ErrorKind::interrupted, "Compiling " + task.specialisation.label + " was cancelled before it began.")));
  }
}

std::int64_t CompilePool::compiled() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->compiled;
}

}  // namespace kiln::jit

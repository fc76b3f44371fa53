#include "jit/compile_pool.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "jit/compile_workers.hpp"
#include "kiln/error.hpp"
#include "manifest/no_signals.hpp"
#include "process/cores.hpp"

namespace kiln::jit {
namespace {

struct Task {
  manifest::Digest key;
  Specialisation specialisation;
  std::promise<Cubin> promise;
  Urgency urgency = Urgency::now;
};

/// The compiles that a later call shares: those under way, and of those that have ended the ones that were asked for
/// last, up to a number of bytes. Not thread-safe.
class Known {
 public:
  explicit Known(std::int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Returns the future of a key, or null.
  const std::shared_future<Cubin>* find(const manifest::Digest& key) {
    const auto at = of_.find(key);
    if (at == of_.end()) return nullptr;
    if (at->second.bytes > 0) ended_.splice(ended_.end(), ended_, at->second.place);
    return &at->second.future;
  }

  /// Precondition: the key is not known.
  void add(const manifest::Digest& key, const std::shared_future<Cubin>& future) {
    const auto at = of_.emplace(key, Compile{future, {}}).first;
    at->second.place = under_way_.insert(under_way_.end(), key);
  }

  /// Precondition: the compile is under way; bytes > 0.
  void end(const manifest::Digest& key, std::int64_t bytes) noexcept {
    const auto at = of_.find(key);
    if (at == of_.end()) return;
    at->second.bytes = bytes;
    bytes_ += bytes;
    ended_.splice(ended_.end(), under_way_, at->second.place);
    while (bytes_ > most_bytes_) erase(ended_.front());
  }

  void erase(manifest::Digest key) noexcept {
    const auto at = of_.find(key);
    if (at == of_.end()) return;
    bytes_ -= at->second.bytes;
    (at->second.bytes > 0 ? ended_ : under_way_).erase(at->second.place);
    of_.erase(at);
  }

 private:
  struct Compile {
    std::shared_future<Cubin> future;
    std::list<manifest::Digest>::iterator place;  // in one of the lists
    std::int64_t bytes = 0;                       // 0: under way
  };

  const std::int64_t most_bytes_;
  std::int64_t bytes_ = 0;
  std::map<manifest::Digest, Compile> of_;
  std::list<manifest::Digest> under_way_, ended_;  // in `ended_` the one that was asked for last is at the end
};

constinit thread_local bool compiles = false;

/// What is kept of a compile beside its texts: the entry, the future's state and the blocks that hold them.
constexpr std::int64_t entry_bytes = 512;

std::int64_t bytes_of(const Cubin& cubin) {
  std::size_t bytes = cubin.image.size() + cubin.log.size();
  for (const std::string& name : cubin.lowered_names) bytes += name.size();
  return entry_bytes + static_cast<std::int64_t>(bytes);
}

}  // namespace

int compiles_at_once(int workers) noexcept { return workers > 0 ? workers : process::usable_cores(); }

/// The most compiles of Urgency::spare at a time. In threads they could neither be stopped nor have a low priority.
std::size_t spare_at_once(const CompileSettings& settings) noexcept {
  if (settings.never || settings.program.empty()) return 0;
  if (settings.spare >= 0) return static_cast<std::size_t>(settings.spare);
  return static_cast<std::size_t>(std::max(compiles_at_once(settings.workers) / 2, 1));
}

CompileSettings low_priority(CompileSettings settings) {
  settings.low_priority = true;
  return settings;
}

struct CompilePool::State {
  const std::size_t most, most_spare;
  const bool may_compile;
  const std::chrono::milliseconds idle_limit;
  const std::function<void(const CompileEnd&)> on_end;
  std::optional<CompileWorkers> processes, spare_processes;
  mutable std::mutex mutex;
  std::condition_variable_any work;
  std::deque<Task> waiting, ahead, spare;                         // by urgency
  std::size_t running = 0, running_ahead = 0, running_spare = 0;  // `running`: those of the first two
  Known known;
  std::int64_t compiled = 0, compiled_spare = 0;
  std::size_t idle = 0;               // threads that wait for work
  std::vector<std::jthread> threads;  // last member: threads use the others until they are joined

  explicit State(const CompileSettings& settings)
      : most(static_cast<std::size_t>(compiles_at_once(settings.workers))),
        most_spare(jit::spare_at_once(settings)),
        may_compile(!settings.never),
        idle_limit(settings.idle),
        on_end(settings.on_end),
        known(settings.kept_bytes) {
    if (settings.program.empty()) return;
    processes.emplace(settings);
    spare_processes.emplace(low_priority(settings));
  }

  [[nodiscard]] std::deque<Task>& queue_of(Urgency urgency) {
    return urgency == Urgency::now ? waiting : urgency == Urgency::ahead ? ahead : spare;
  }

  /// Returns an urgent task that no thread of the pool will take, since none runs and none can be begun: the caller
  /// runs it. Precondition: the mutex is held.
  [[nodiscard]] std::optional<Task> add(Task task) {
    std::deque<Task>& to = queue_of(task.urgency);
    to.push_back(std::move(task));
    rouse();
    if (threads.empty() && &to == &waiting) {
      std::optional<Task> left = std::move(waiting.back());
      waiting.pop_back();
      return left;
    }
    return std::nullopt;
  }

  /// Has a thread take what can begin. Precondition: the mutex is held.
  void rouse() {
    if (idle < can_begin() && threads.size() < most + most_spare) try_to_begin_thread();
    work.notify_one();
  }

  /// Where the system refuses a thread, those that run take the work, and the next task asks again.
  void try_to_begin_thread() {
    try {
      const manifest::NoSignals no_signals;
      threads.emplace_back([this](const std::stop_token& stop) { serve(stop); });
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): add() deals with a pool without threads
    }
  }

  /// How many tasks of a class may begin, of which so many run. Precondition: the mutex is held.
  [[nodiscard]] static std::size_t within(std::size_t limit, std::size_t now_running, std::size_t tasks) {
    return std::min(tasks, limit - std::min(now_running, limit));
  }
  [[nodiscard]] std::size_t can_begin() const {
    const std::size_t others = waiting.size() + within(most / 2, running_ahead, ahead.size());
    return within(most, running, others) + (waiting.empty() ? within(most_spare, running_spare, spare.size()) : 0);
  }
  /// The queue whose first task begins next. Precondition: can_begin() > 0.
  [[nodiscard]] std::deque<Task>& next_queue() {
    if (!waiting.empty()) return waiting;
    const bool takes_ahead = within(most, running, within(most / 2, running_ahead, ahead.size())) > 0;
    return takes_ahead ? ahead : spare;
  }

  /// Moves a task that waits to be compiled ahead among the urgent ones. Returns as add() does. Precondition: the mutex
  /// is held.
  [[nodiscard]] std::optional<Task> hasten(const manifest::Digest& key) {
    for (std::deque<Task>* from : {&ahead, &spare}) {
      const auto found = std::ranges::find(*from, key, &Task::key);
      if (found == from->end()) continue;
      Task task = std::move(*found);
      from->erase(found);
      task.urgency = Urgency::now;
      return add(std::move(task));
    }
    return std::nullopt;
  }

  /// Returns the future of the key's compile, and in `left` what add() returns. Precondition: the mutex is held.
  std::shared_future<Cubin> ask(const manifest::Digest& key, Specialisation&& specialisation, Urgency urgency,
                                std::optional<Task>& left) {
    try {
      if (const auto* same = known.find(key); same != nullptr) {
        std::shared_future<Cubin> future = *same;
        if (urgency == Urgency::now) left = hasten(key);
        return future;
      }
      Task task{key, std::move(specialisation), {}, urgency};
      std::shared_future<Cubin> future = task.promise.get_future().share();
      known.add(key, future);
      left = add(std::move(task));
      return future;
    } catch (...) {
      known.erase(key);  // nobody will make its future ready
      throw;
    }
  }

  void serve(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (wait_for_work(lock, stop)) {
      std::deque<Task>& from = next_queue();
      Task task = std::move(from.front());
      from.pop_front();
      count_running(task.urgency, 1);
      if (can_begin() > 0) rouse();  // the last urgent task has begun
      lock.unlock();
      run(task);
      lock.lock();
      count_running(task.urgency, -1);
    }
  }

  void count_running(Urgency urgency, int change) {
    (urgency == Urgency::spare ? running_spare : running) += static_cast<std::size_t>(change);
    if (urgency == Urgency::ahead) running_ahead += static_cast<std::size_t>(change);
  }

  /// Returns false when the pool ends. A thread that waits longer than idle_limit ends the idle processes.
  bool wait_for_work(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    const auto there_is = [this] { return can_begin() > 0; };
    ++idle;
    bool any_idle = processes.has_value();
    while (any_idle && !work.wait_for(lock, stop, idle_limit, there_is) && !stop.stop_requested()) {
      lock.unlock();
      any_idle = processes->end_idle();
      any_idle = spare_processes->end_idle() || any_idle;
      lock.lock();
    }
    const bool some = work.wait(lock, stop, there_is);
    --idle;
    return some;
  }

  Cubin make(const Task& task) {
    if (!processes) return compile(task.specialisation);
    CompileWorkers& of = task.urgency == Urgency::spare ? *spare_processes : *processes;
    return of.compile(task.key, task.specialisation);
  }

  void run(Task& task) {
    const bool before = std::exchange(compiles, true);  // a callback may have another pool compile on this thread
    run_task(task);
    compiles = before;
  }

  /// Counts before the future is ready, so that a caller that waited for every future reads the full count.
  void run_task(Task& task) {
    const auto begun = std::chrono::steady_clock::now();
    const auto count = [&](const char* failure, bool is_told = true) {
      if (on_end && is_told)
        on_end({task.specialisation,
                std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun),
                failure, task.urgency == Urgency::spare});
      const std::lock_guard lock(mutex);
      ++compiled;
      if (task.urgency == Urgency::spare) ++compiled_spare;
    };
    try {
      Cubin cubin = make(task);
      count(nullptr);
      keep(task.key, bytes_of(cubin));
      task.promise.set_value(std::move(cubin));
    } catch (const Error& error) {
      count(error.what(), error.kind() != ErrorKind::interrupted);
      if (error.kind() == ErrorKind::compile_failed)
        keep(task.key, entry_bytes + static_cast<std::int64_t>(std::string_view(error.what()).size()));
      else
        forget(task.key);
      task.promise.set_exception(std::current_exception());
    } catch (...) {
      count("an exception of no known kind");
      forget(task.key);
      task.promise.set_exception(std::current_exception());
    }
  }

  /// Keeps what a compile gave for later calls, as far as kept_bytes allows.
  void keep(const manifest::Digest& key, std::int64_t bytes) {
    const std::lock_guard lock(mutex);
    known.end(key, bytes);
  }

  /// Lets a later call compile again: the failure, such as lack of memory, need not repeat.
  void forget(const manifest::Digest& key) {
    const std::lock_guard lock(mutex);
    known.erase(key);
  }

  /// Removes and returns the compiles that have not begun.
  std::deque<Task> drop_waiting() {
    const std::lock_guard lock(mutex);
    for (std::deque<Task>* from : {&ahead, &spare}) {
      std::ranges::move(*from, std::back_inserter(waiting));
      from->clear();
    }
    for (const Task& task : waiting) known.erase(task.key);
    return std::exchange(waiting, {});
  }
};

CompilePool::CompilePool(const CompileSettings& settings) : state_(std::make_unique<State>(settings)) {}

CompilePool::~CompilePool() {
  for (std::jthread& thread : state_->threads) thread.request_stop();
  interrupt();
}

std::shared_future<Cubin> CompilePool::submit(const manifest::Digest& key, Specialisation specialisation,
                                              Urgency urgency) {
  std::optional<Task> left;
  std::shared_future<Cubin> future;
  {
    const std::lock_guard lock(state_->mutex);
    future = state_->ask(key, std::move(specialisation), urgency, left);
  }
  if (left) state_->run(*left);
  return future;
}

void CompilePool::cancel() {
  for (Task& task : state_->drop_waiting()) {
    task.promise.set_exception(std::make_exception_ptr(
        Error(ErrorKind::interrupted, "compiling " + task.specialisation.label + " was cancelled before it began")));
  }
}

void CompilePool::interrupt() {
  cancel();
  if (!state_->processes) return;
  state_->processes->interrupt();
  state_->spare_processes->interrupt();
}

std::size_t CompilePool::at_once() const noexcept { return state_->most; }

std::size_t CompilePool::spare_at_once() const noexcept { return state_->most_spare; }

bool CompilePool::may_compile() const noexcept { return state_->may_compile; }

bool CompilePool::is_compiling() noexcept { return compiles; }

std::int64_t CompilePool::compiled() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->compiled;
}

std::int64_t CompilePool::compiled_spare() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->compiled_spare;
}

}  // namespace kiln::jit

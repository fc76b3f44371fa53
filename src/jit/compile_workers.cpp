#include "jit/compile_workers.hpp"

#include <fmt/format.h>

#include <exception>

#include "cuda/nvrtc_api.hpp"
#include "jit/compile_messages.hpp"
#include "kiln/error.hpp"
#include "process/message.hpp"

namespace kiln::jit {

using process::Channel;
using process::Child;

Cubin CompileWorkers::compile(const manifest::Digest& key, const Specialisation& specialisation) {
  const nlohmann::json asked = to_json(
      CompileRequest{key, specialisation, cuda::Nvrtc::get().path, settings_.memory_bytes, settings_.low_priority});
  for (bool is_again = false;; is_again = true) {
    Turn turn(*this);
    nlohmann::json answer;
    const Channel::Outcome state = turn.child().ask(asked, answer, settings_.limit);
    turn.leave();
    if (state == Channel::Outcome::late) {
      turn.child().stop();
      fail(specialisation, fmt::format("was not done after {} s, and was stopped",
                                       std::chrono::duration<double>(settings_.limit).count()));
    }
    if (state == Channel::Outcome::closed) {
      const std::string how = turn.child().stop();
      if (is_again || !turn.child().was_killed() || is_interrupted()) fail(specialisation, how);
      continue;
    }
    try {
      process::rethrow(answer);
      Cubin cubin = cubin_from_json(answer, specialisation.name_expressions.size());
      turn.give_back();
      return cubin;
    } catch (const Error&) {
      turn.give_back();
      throw;
    } catch (const std::exception& error) {
      throw Error(ErrorKind::io,
                  fmt::format("{}: the worker's answer cannot be read: {}", specialisation.label, error.what()));
    }
  }
}

void CompileWorkers::fail(const Specialisation& specialisation, const std::string& how) const {
  const std::string asked = fmt::format("compiling {} for {}", specialisation.label, specialisation.arch);
  const std::lock_guard lock(mutex_);
  if (interrupted_) throw Error(ErrorKind::interrupted, asked + " was interrupted");
  throw Error(ErrorKind::compile_failed, fmt::format("{} failed: the compiler {}", asked, how));
}

void CompileWorkers::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (Child* child : busy_) child->interrupt();
  for (const Idle& each : idle_) each.child->interrupt();  // all at once, so that they end in parallel
}

std::unique_ptr<Child> CompileWorkers::take_idle() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return nullptr;
  auto child = std::move(idle_.back().child);
  idle_.pop_back();
  ++turns_;
  return child;
}

/// Where the system refuses a process while others compile, waits for one of those and returns null. Each ends within
/// its limit.
std::unique_ptr<Child> CompileWorkers::spawn() {
  std::unique_lock lock(mutex_);
  const std::int64_t ended = ended_turns_;
  ++spawning_;
  lock.unlock();
  std::unique_ptr<Child> child;
  std::exception_ptr failure;
  bool is_refused = false;
  try {
    child = std::make_unique<Child>(settings_.program);
  } catch (const process::Refused&) {
    is_refused = true;
    failure = std::current_exception();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  --spawning_;
  if (child) ++turns_;
  turn_ended_.notify_all();
  if (child) return child;
  if (is_refused) turn_ended_.wait(lock, [&] { return ended_turns_ != ended || (turns_ == 0 && spawning_ == 0); });
  if (is_refused && ended_turns_ != ended) return nullptr;
  std::rethrow_exception(failure);
}

void CompileWorkers::end_turn() noexcept {
  const std::lock_guard lock(mutex_);
  --turns_;
  ++ended_turns_;
  turn_ended_.notify_all();
}

bool CompileWorkers::is_interrupted() const {
  const std::lock_guard lock(mutex_);
  return interrupted_;
}

CompileWorkers::Turn::Turn(CompileWorkers& workers) : workers_(workers) {
  while (!child_) {
    child_ = workers_.take_idle();
    if (!child_) child_ = workers_.spawn();
    if (!child_ || !child_->gone()) continue;
    child_.reset();  // it ended while idle
    workers_.end_turn();
  }
  const std::lock_guard lock(workers_.mutex_);
  if (workers_.interrupted_) child_->interrupt();
  workers_.busy_.insert(child_.get());
}

CompileWorkers::Turn::~Turn() {
  leave();
  child_.reset();  // before another process takes its place
  workers_.end_turn();
}

void CompileWorkers::Turn::leave() noexcept {
  const std::lock_guard lock(workers_.mutex_);
  workers_.busy_.erase(child_.get());
}

void CompileWorkers::Turn::give_back() {
  const std::lock_guard lock(workers_.mutex_);
  workers_.busy_.erase(child_.get());
  workers_.idle_.push_back({std::move(child_), Clock::now()});
}

bool CompileWorkers::end_idle() {
  std::vector<Idle> ended;  // destroyed after the lock is released: ending a process takes time
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  while (!idle_.empty() && now - idle_.front().since >= settings_.idle) {
    ended.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
  return !idle_.empty();
}

}  // namespace kiln::jit

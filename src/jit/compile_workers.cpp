#include "jit/compile_workers.hpp"

#include <fmt/format.h>

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
  std::unique_ptr<Child> child = take();
  nlohmann::json answer;
  const Channel::State state = child->ask(asked, answer, settings_.limit);
  let_go(*child);
  if (state == Channel::State::late) {
    child->stop();
    fail(specialisation, fmt::format("was not done after {} s, and was stopped",
                                     std::chrono::duration<double>(settings_.limit).count()));
  }
  if (state == Channel::State::closed) fail(specialisation, child->stop());
  give_back(std::move(child));
  process::rethrow(answer);
  try {
    return cubin_from_json(answer);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::io,
                fmt::format("{}: the worker's answer cannot be read: {}", specialisation.label, error.what()));
  }
}

void CompileWorkers::fail(const Specialisation& specialisation, const std::string& how) const {
  const std::string asked = fmt::format("Compiling {} for {}", specialisation.label, specialisation.arch);
  const std::lock_guard lock(mutex_);
  if (interrupted_) throw Error(ErrorKind::interrupted, asked + " was interrupted.");
  throw Error(ErrorKind::compile_failed, fmt::format("{} failed: the compiler {}.", asked, how));
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
  return child;
}

std::unique_ptr<Child> CompileWorkers::take() {
  auto child = take_idle();
  while (child && child->gone()) child = take_idle();  // it ended while idle
  if (!child) child = std::make_unique<Child>(settings_.program);
  const std::lock_guard lock(mutex_);
  if (interrupted_) child->interrupt();
  busy_.insert(child.get());
  return child;
}

void CompileWorkers::let_go(Child& child) {
  const std::lock_guard lock(mutex_);
  busy_.erase(&child);
}

void CompileWorkers::give_back(std::unique_ptr<Child> child) {
  const std::lock_guard lock(mutex_);
  idle_.push_back({std::move(child), Clock::now()});
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

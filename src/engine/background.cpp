#include "engine/background.hpp"

#include <fmt/format.h>

#include <system_error>

#include "answer/expected_times.hpp"
#include "cuda/device.hpp"
#include "engine/miss_path.hpp"
#include "engine/state.hpp"
#include "engine/tune_once.hpp"
#include "kiln/error.hpp"
#include "manifest/keep_loaded.hpp"
#include "manifest/no_signals.hpp"
#include "manifest/shortage.hpp"

namespace kiln::engine {
namespace {

constexpr auto held_elsewhere_pause = std::chrono::milliseconds(200);
constexpr auto no_thread_pause = std::chrono::milliseconds(50);

/// The program's own threads take precedence.
jit::CompileSettings low_priority(const Options& options) {
  jit::CompileSettings settings = compile_settings(options);
  settings.low_priority = true;
  return settings;
}

/// Whether the failure keeps every bucket from being tuned, so that one warning is enough.
bool is_of_every_bucket(ErrorKind kind) { return kind == ErrorKind::no_nvrtc || kind == ErrorKind::no_driver; }

}  // namespace

Background::Compiling::Compiling(EngineState& engine)
    : pool(low_priority(engine.options)), cubins(engine.layers, pool) {}

Background::Background(EngineState& engine)
    : engine_(engine), has_worker_(engine.worker != nullptr), pacer_(engine.options.background_share) {}

Background::~Background() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  // A tune that waits for a compile wakes when that ends. Interrupts compiles until the tune has noticed the stop.
  std::unique_lock lock(mutex_);
  while (busy_) {
    compiling_->pool.interrupt();
    changed_.wait_for(lock, std::chrono::milliseconds(20), [this] { return !busy_; });
  }
}

void Background::want(plan::OpState& op, const Problem& bucket, const plan::PlanState* fallback) {
  {
    const std::lock_guard lock(mutex_);
    if (given_up_) return;
    if (seen_[&op].contains(bucket)) {
      if (fallback == nullptr) return;
      for (Wanted& each : queue_)  // a capture asked first, with no plan to count launches by
        if (each.op == &op && each.bucket == bucket && each.fallback == nullptr) each.fallback = fallback;
      return;
    }
  }
  const double ns =
      answer::expected_ns({op.op, engine_.context.info().facts, engine_.options.regime}, bucket, engine_.layers);
  const std::lock_guard lock(mutex_);
  if (given_up_) return;
  if (!has_worker_) {
    given_up_ = true;
    const std::string why = why_no_worker(engine_.options, engine_.context.info());
    engine_.warn(
        !why.empty()
            ? "nothing is tuned in the background: " + why
            : "nothing is tuned in the background: candidates run in a worker process only, and there is none; name kiln-worker in Options::worker or KILN_WORKER, and leave Options::isolation automatic");
    return;
  }
  auto& seen = seen_[&op];
  if (!seen.contains(bucket)) {
    queue_.push_back({&op, bucket, fallback, ns, {}});
    try {
      seen.insert(bucket);
    } catch (...) {
      queue_.pop_back();
      throw;
    }
  }
  begin_thread();
  changed_.notify_all();
}

void Background::begin_thread() {
  if (thread_.joinable() || queue_.empty()) return;
  if (!compiling_) compiling_ = std::make_unique<Compiling>(engine_);
  try {
    const manifest::NoSignals no_signals;
    thread_ = std::jthread([this](const std::stop_token& stop) { serve_and_delete(stop); });
  } catch (const std::system_error& error) {
    engine_.warn(fmt::format(
        "nothing is tuned in the background for now, until a later request or Engine::wait_for_tunes: there is no thread: {}",
        manifest::refusal_text(error.code().value())));
  }
}

bool Background::wait_until(Clock::time_point end) {
  const auto is_done = [this] { return queue_.empty() && !busy_; };
  std::unique_lock lock(mutex_);
  begin_thread();
  while (!thread_.joinable() && !is_done() && Clock::now() < end) {
    changed_.wait_for(lock, no_thread_pause);
    begin_thread();
  }
  return changed_.wait_until(lock, end, is_done);
}

void Background::delete_at_end(EngineState& engine) {
  deleted_at_end_ = &engine;
  thread_.request_stop();
  compiling_->pool.interrupt();
  manifest::keep_library_loaded();
  thread_.detach();
}

void Background::serve_and_delete(const std::stop_token& stop) {
  serve(stop);
  delete deleted_at_end_;  // null, or the engine and this with it
}

std::int64_t Background::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(queue_.size()) + (busy_ ? 1 : 0);
}

std::int64_t Background::compiled() const {
  const std::lock_guard lock(mutex_);
  return compiling_ ? compiling_->cubins.compiled() : 0;
}

/// Takes the bucket with the most launch time, sampled launches times expected time, that no other process is tuning.
bool Background::take_next(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, Wanted& next) {
  const auto worth = [](const Wanted& each) {
    std::int64_t samples = 1;
    if (each.fallback != nullptr)
      for (const plan::PlanState* plan : each.fallback->of.made())
        samples += plan->samples.load(std::memory_order_relaxed);
    return static_cast<double>(samples) * each.expected_ns;
  };
  while (!stop.stop_requested()) {
    const auto now = Clock::now();
    auto best = queue_.end();
    for (auto each = queue_.begin(); each != queue_.end(); ++each)
      if (each->not_before <= now && (best == queue_.end() || worth(*each) > worth(*best))) best = each;
    if (best != queue_.end()) {
      next = *best;
      queue_.erase(best);
      return true;
    }
    if (queue_.empty())
      changed_.wait(lock, stop, [this] { return !queue_.empty(); });
    else
      changed_.wait_for(lock, stop, held_elsewhere_pause, [] { return false; });
  }
  return false;
}

void Background::serve(const std::stop_token& stop) {
  // What this thread allocates and loads must not end other threads' captures.
  const cuda::RelaxedCapture relaxed;
  Wanted next;
  std::unique_lock lock(mutex_);
  while (take_next(lock, stop, next)) {
    busy_ = true;
    lock.unlock();
    const End end = try_to_tune(next, stop);
    lock.lock();
    busy_ = false;
    if (end == End::held_elsewhere) {
      next.not_before = Clock::now() + held_elsewhere_pause;
      try {
        queue_.push_back(next);
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the other process publishes its record
      }
    }
    if (given_up_ || end == End::stopped) queue_.clear();
    changed_.notify_all();
    if (!queue_.empty()) continue;
    lock.unlock();
    {
      const std::lock_guard tuning(engine_.tune_mutex);  // a Tuner of this engine may be using the worker
      engine_.worker.reset();                            // frees the device memory of its context and tensors
    }
    lock.lock();
  }
}

Background::End Background::try_to_tune(const Wanted& wanted, const std::stop_token& stop) noexcept try {
  const auto failed = [&](ErrorKind kind, const char* message) {
    if (kind == ErrorKind::interrupted) return End::stopped;
    engine_.warn(fmt::format("{} {} is not tuned in the background, and its fallback goes on serving: {}",
                             wanted.op->op.name, manifest::display_text(wanted.op->op, wanted.bucket), message),
                 wanted.op->op.name, manifest::to_string(wanted.op->op, wanted.bucket));
    if (!is_of_every_bucket(kind)) return End::done;
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    return End::done;
  };
  try {
    return tune(wanted, stop);
  } catch (const Error& error) {
    return failed(error.kind(), error.what());
  } catch (const std::exception& error) {
    return failed(ErrorKind::io, error.what());
  } catch (...) {
    return failed(ErrorKind::io, "on_tune or stop_requested threw what is no std::exception");
  }
} catch (const std::exception&) {  // no memory for the warning
  return End::done;
}

Background::End Background::tune(const Wanted& wanted, const std::stop_token& stop) {
  plan::OpState& op = *wanted.op;
  const cuda::Context::Scope scope(engine_.context);
  TuneAsked asked;
  asked.patience = std::chrono::milliseconds(0);
  asked.only_in_worker = true;
  asked.cubins = &compiling_->cubins;
  asked.stop_requested = [&] { return stop.stop_requested(); };
  asked.pace = [&](double device_ns) { pacer_.spend(device_ns, stop); };
  asked.adopt = [&](const answer::Resolution& tuned) { adopt(op, tuned); };
  const TuneOutcome outcome = tune_once(engine_, op.op, wanted.bucket, asked);
  // Another process, or another engine of this one, has tuned it.
  if (outcome.end == TuneOutcome::End::found) adopt(op, outcome.resolution);
  return outcome.end == TuneOutcome::End::held_elsewhere ? End::held_elsewhere : End::done;
}

}  // namespace kiln::engine

#include "engine/ahead.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "answer/machine_code.hpp"
#include "cuda/device.hpp"
#include "engine/miss_path.hpp"
#include "engine/stand_in.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "manifest/keep_loaded.hpp"
#include "manifest/no_signals.hpp"

namespace kiln::engine {
namespace {

constexpr auto glance = std::chrono::milliseconds(10);  // how often compiles are looked at
constexpr std::size_t most_met = 64;                    // buckets of an op
// A stand-in that cannot be replaced for now: further tries, before which the pause doubles.
constexpr int most_tries = 6;
constexpr auto retry_pause = std::chrono::milliseconds(100);
constexpr int rank_of_stand_in = -3, rank_of_left = -2, rank_of_default = -1;

/// The launches that the engine's files count, by bucket, the most launched first.
std::vector<answer::BucketCount> counts_of(const manifest::Op& op, const store::Layers& layers) {
  std::vector<answer::BucketCount> counts;
  for (const store::Layer& layer : layers.layers()) {
    if (!layer.file) continue;
    for (const store::HistogramRow& row : layer.file->histogram()) {
      const auto problem = row.op == op.name ? manifest::parse_bucket(op, row.problem) : std::nullopt;
      if (!problem) continue;
      const Problem bucket = manifest::bucket_of(op, *problem);
      const auto known = std::ranges::find(counts, bucket, &answer::BucketCount::bucket);
      known == counts.end() ? counts.push_back({bucket, row.launches})
                            : void(known->launches = store::capped_sum(known->launches, row.launches));
    }
  }
  std::stable_sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.launches > b.launches; });
  return counts;
}

}  // namespace

Ahead::~Ahead() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  engine_.pool.interrupt();
}

void Ahead::met(plan::OpState& op, const Problem& bucket) {
  if (op.op.is_of_team()) return;
  const std::lock_guard lock(mutex_);
  note(op, bucket);
  if (ops_[&op].lacks_code) begin_thread();
}

void Ahead::want_near(plan::OpState& op, const Problem& bucket) {
  if (op.op.is_of_team()) return;
  const std::lock_guard lock(mutex_);
  ops_[&op].lacks_code = true;
  note(op, bucket);
  if (op.takes_fallbacks()) queue_.push_back({&op, bucket, rank_of_default, misses_, false, true});
  begin_thread();
}

void Ahead::want_swap(plan::OpState& op, const Problem& bucket) {
  const std::lock_guard lock(mutex_);
  OfOp& of = ops_[&op];
  if (of.swapped.contains(bucket)) return;  // another thread launched it too
  of.lacks_code = true;
  note(op, bucket);
  queue_.reserve(queue_.size() + 1);  // what fails does so before anything is queued
  of.swapped.insert(bucket);
  queue_.push_back({&op, bucket, rank_of_stand_in, 0, true});
  begin_thread();
}

void Ahead::want_left(plan::OpState& op, plan::BucketPlans& plans) {
  const std::lock_guard lock(mutex_);
  const auto is_its = [&](const Wanted& each) { return each.left == &plans; };
  if (std::ranges::none_of(queue_, is_its))
    queue_.push_back({&op, plans.resolution.bucket.edge, rank_of_left, 0, false, false, &plans});
  begin_thread();
}

void Ahead::note(plan::OpState& op, const Problem& bucket) {
  OfOp& of = ops_[&op];
  std::erase(of.met, bucket);
  if (of.met.size() == most_met) of.met.erase(of.met.begin());
  of.met.push_back(bucket);
  of.seen.insert(bucket);
  if (of.lacks_code && of.asked.insert(bucket).second) missed_.push_back({&op, bucket, ++misses_});
}

bool Ahead::wait_until(std::chrono::steady_clock::time_point end) {
  std::unique_lock lock(mutex_);
  if (!is_idle()) begin_thread();
  return changed_.wait_until(lock, end, [this] { return is_idle() || !thread_.joinable(); }) && is_idle();
}

void Ahead::delete_at_end(EngineState& engine) {
  deleted_at_end_ = &engine;
  thread_.request_stop();
  engine_.pool.interrupt();
  manifest::keep_library_loaded();
  thread_.detach();
}

bool Ahead::is_running() const {
  const std::lock_guard lock(mutex_);
  return thread_.joinable();
}

void Ahead::begin_thread() {
  changed_.notify_all();
  if (thread_.joinable()) return;
  try {
    const manifest::NoSignals no_signals;
    thread_ = std::jthread([this](const std::stop_token& stop) { serve_and_delete(stop); });
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): launches compile what they need
  }
}

bool Ahead::is_idle() const { return missed_.empty() && queue_.empty() && begun_.empty() && !busy_; }

/// Few compiles are begun before they can run, so that a later miss changes their order. What a launch asked for does
/// not wait.
bool Ahead::may_begin() const {
  if (queue_.empty()) return false;
  std::size_t compiles = 0;
  for (const Begun& each : begun_) compiles += each.compiles.size();
  return compiles < 2 * engine_.pool.spare_at_once() ||
         std::ranges::any_of(queue_, [](const Wanted& each) { return each.is_asked_for(); });
}

Ahead::Wanted Ahead::take_next() {
  const auto comes_before = [](const Wanted& a, const Wanted& b) {
    return std::pair(a.rank, -a.number) < std::pair(b.rank, -b.number);
  };
  const auto next = std::min_element(queue_.begin(), queue_.end(), comes_before);
  const Wanted taken = *next;
  queue_.erase(next);
  return taken;
}

void Ahead::serve_and_delete(const std::stop_token& stop) {
  serve(stop);
  delete deleted_at_end_;  // null, or the engine and this with it
}

void Ahead::serve(const std::stop_token& stop) {
  // What this thread loads must not end other threads' captures.
  const cuda::RelaxedCapture relaxed;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    busy_ = true;
    try {
      if (work(lock, stop)) continue;
    } catch (const std::exception&) {  // no memory: what was taken up is still there
      if (!lock.owns_lock()) lock.lock();
      changed_.wait_for(lock, stop, glance, [] { return false; });
      continue;
    }
    busy_ = false;
    changed_.notify_all();
    changed_.wait(lock, stop, [this] { return is_asked(); });
  }
  busy_ = false;
}

bool Ahead::work(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
  if (!missed_.empty()) {
    const Missed missed = missed_.front();
    missed_.pop_front();
    lock.unlock();
    queue_near(missed);
    lock.lock();
    return true;
  }
  if (may_begin()) {
    begun_.reserve(begun_.size() + 1);
    const Wanted next = take_next();
    lock.unlock();
    std::vector<Compile> compiles = begin(next);
    lock.lock();
    if (!compiles.empty() || next.is_asked_for()) begun_.push_back({next, std::move(compiles)});
    return true;
  }
  if (begun_.empty()) return false;
  std::vector<char> done(begun_.size());
  lock.unlock();
  for (std::size_t i = 0; i < begun_.size(); ++i) done[i] = !stop.stop_requested() && finish(begun_[i], stop) ? 1 : 0;
  lock.lock();
  std::size_t i = 0;
  std::erase_if(begun_, [&](const Begun&) { return done[i++] != 0; });
  if (!begun_.empty()) changed_.wait_for(lock, stop, glance, [this] { return is_asked(); });
  return true;
}

void Ahead::queue_near(const Missed& missed) {
  const manifest::Op& op = missed.op->op;
  std::unique_lock lock(mutex_);
  OfOp& of = ops_[missed.op];  // which later entries leave in its place
  const std::vector<Problem> met = of.met;
  lock.unlock();
  std::vector<answer::NextBucket> near;
  try {
    if (!of.counted) of.counted = counts_of(op, engine_.layers);
    near = answer::next_buckets(op, missed.bucket, met, *of.counted);
  } catch (const std::exception&) {  // a file that cannot be read, or no memory: launches compile what they need
    return;
  }
  lock.lock();
  for (const answer::NextBucket& each : near)
    if (of.seen.insert(each.bucket).second) queue_.push_back({missed.op, each.bucket, each.rank, missed.number});
}

std::vector<Ahead::Compile> Ahead::begin(const Wanted& wanted) noexcept {
  std::vector<Compile> compiles;
  try {
    const cuda::Context::Scope scope(engine_.context);  // where a library is asked what it takes
    if (!engine_.cubins.can_compile()) return compiles;
    const plan::OpState& op = *wanted.op;
    const auto begin_one = [&](const answer::Resolution& of, const answer::Answer& answer) {
      answer::CodeLookup code(of.bucket, answer, engine_.arch());
      if (code.is_needed() && !code.find_serving(engine_.cubins))
        compiles.push_back({code.here(), engine_.cubins.begin_spare(code.here())});
    };
    if (wanted.left != nullptr) {
      for (const plan::PlanSlot& each : wanted.left->slots)
        if (each.is_left) begin_one(wanted.left->resolution, *each.answer);
      return compiles;
    }
    if (wanted.is_default && library_computes(op.site().bucket_of(wanted.bucket))) return compiles;
    const answer::Resolution resolution = op.resolve(wanted.bucket, op.takes_fallbacks());
    if (!resolution.is_hit() && !op.takes_fallbacks()) return compiles;
    if (wanted.is_default) {
      if (const answer::Answer* const each = default_to_stand_in(resolution)) begin_one(resolution, *each);
      return compiles;
    }
    for (const answer::Answer* each : resolution.picked_by_size()) begin_one(resolution, *each);
  } catch (
      const std::exception&) {  // NOLINT(bugprone-empty-catch): a launch that needs the bucket meets it and says so
  }
  return compiles;
}

bool Ahead::finish(Begun& begun, const std::stop_token& stop) noexcept {
  bool all = true, any = false;
  for (Compile& each : begun.compiles) {
    if (each.is_kept) continue;
    if (each.cubin.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      all = false;
      continue;
    }
    each.is_kept = true;
    try {
      engine_.cubins.keep(each.code, each.cubin.get());
      any = true;
    } catch (
        const std::exception&) {  // NOLINT(bugprone-empty-catch): Options::on_log has it, or only the file lacks it
    }
  }
  if (!begun.of.is_asked_for() || stop.stop_requested()) return all;
  if (begun.of.left != nullptr) {
    if (all) make_left(begun.of);
    return all;
  }
  Replaced replaced = Replaced::no;
  if (all) {
    if (std::chrono::steady_clock::now() < begun.not_before) return false;
    replaced = replace(begun.of, begun.tries == most_tries);
  }
  if (replaced != Replaced::yes && any) replace_in_part(begun.of);
  if (replaced != Replaced::not_now) return all;
  begun.not_before = std::chrono::steady_clock::now() + retry_pause * (1 << begun.tries++);
  return false;
}

void Ahead::replace_in_part(const Wanted& wanted) noexcept {
  try {
    const cuda::Context::Scope scope(engine_.context);
    plan::PlanStore& store = wanted.op->plans;
    const plan::BucketPlans* const serving = store.stand_in_for(wanted.bucket);
    if (serving == nullptr) return;
    if (auto plans = with_more_code(*wanted.op, *serving)) store.publish_over_stand_in(std::move(plans), serving->edge);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): what serves goes on serving
  }
}

void Ahead::make_left(const Wanted& wanted) noexcept {
  try {
    const cuda::Context::Scope scope(engine_.context);
    wanted.op->plans.make_left(*wanted.left);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): what serves goes on serving
  }
}

Ahead::Replaced Ahead::replace(const Wanted& wanted, bool gives_up) noexcept try {
  const auto failed = [&](const std::exception& why) {
    if (!gives_up && plan::may_pass(why)) return Replaced::not_now;
    engine_.warn(fmt::format("{} {} keeps its stand-in: {}", wanted.op->op.name,
                             manifest::display_text(wanted.op->op, wanted.bucket), why.what()));
    return Replaced::no;
  };
  try {
    const cuda::Context::Scope scope(engine_.context);
    replace_stand_in(*wanted.op, wanted.bucket);
    return Replaced::yes;
  } catch (const Error& error) {
    return error.kind() == ErrorKind::interrupted ? Replaced::no : failed(error);
  } catch (const std::exception& error) {
    return failed(error);
  }
} catch (const std::exception&) {  // no memory for the warning
  return Replaced::no;
}

}  // namespace kiln::engine

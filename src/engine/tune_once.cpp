#include "engine/tune_once.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "engine/lease.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "tune/tuner.hpp"

namespace kiln::engine {
namespace {

/// The engine's request for the bucket, with the caller's callbacks added.
tune::TuneRequest request_of(State& state, const manifest::Op& op, const Problem& bucket, const TuneAsked& asked) {
  tune::TuneRequest request = state.tune_request(op, bucket);
  request.worker = asked.team == nullptr ? state.worker.get() : nullptr;
  request.team = asked.team;
  if (asked.stop_requested)
    request.stop_requested = [own = request.stop_requested, other = asked.stop_requested] {
      return (own && own()) || other();
    };
  if (asked.on_event)
    request.on_event = [own = request.on_event, other = asked.on_event](const TuneEvent& event) {
      if (own) own(event);
      other(event);
    };
  request.pace = asked.pace;
  return request;
}

answer::Cubins& cubins_of(State& state, const TuneAsked& asked) {
  return asked.cubins != nullptr ? *asked.cubins : state.cubins;
}

thread_local const WithinTune* innermost = nullptr;

constexpr auto untold_wait = std::chrono::milliseconds(500);  // most tunes end within it

void tell_who_is_waited_for(const State& state, const manifest::Op& op, const Problem& bucket, const TuneAsked& asked,
                            const std::string& holder) {
  if (holder.empty()) return;  // free by now
  const std::string text = manifest::to_string(op, bucket);
  const std::string reason =
      fmt::format("{} is tuning it; one that is stopped is waited for {} s at most", holder, lease_seconds);
  TuneEvent event;
  event.kind = TuneEvent::Kind::waiting;
  event.op = op.name;
  event.bucket = text;
  event.reason = reason;
  if (state.options.on_tune) state.options.on_tune(event);
  if (asked.on_event) asked.on_event(event);
}

}  // namespace

WithinTune::WithinTune(const State& state) noexcept : state_(state), around_(innermost) { innermost = this; }

WithinTune::~WithinTune() { innermost = around_; }

bool WithinTune::is_within(const State& state) noexcept {
  for (const WithinTune* each = innermost; each != nullptr; each = each->around_)
    if (&each->state_ == &state) return true;
  return false;
}

void WithinTune::refuse_within(const State& state, const std::string& asked) {
  if (!is_within(state)) return;
  throw Error(
      ErrorKind::bad_input,
      fmt::format(
          "{} was asked for in a callback of a tune (on_tune, on_step, on_compile or stop_requested), which it would wait for; ask once that tune is done, or of another engine",
          asked));
}

void State::refuse_wait(const manifest::Bucket& bucket) const { WithinTune::refuse_within(*this, bucket.text()); }

std::vector<std::string> wrong_throughout(std::span<const store::Candidate> candidates) {
  struct Tried {
    std::set<std::string_view> right, wrong;  // configs
    const store::Candidate* first = nullptr;  // that was wrong
  };
  std::map<std::string_view, Tried> tried;
  for (const store::Candidate& each : candidates) {
    Tried& of = tried[each.implementation];
    if (each.verdict == store::Verdict::ok) of.right.insert(each.config);
    if (each.verdict != store::Verdict::wrong_result) continue;
    of.wrong.insert(each.config);
    if (of.first == nullptr) of.first = &each;
  }
  std::vector<std::string> sentences;
  for (const auto& [implementation, of] : tried)
    if (of.right.empty() && of.first != nullptr)
      sentences.push_back(
          fmt::format("'{}' is left out: {} that ran gave wrong results, such as {}: {}", implementation,
                      of.wrong.size() == 1 ? "the only config" : fmt::format("all {} configs", of.wrong.size()),
                      of.first->config, of.first->reason));
  return sentences;
}

bool is_enough(const answer::Resolution& resolution, Retune retune) {
  return resolution.is_hit() && retune != Retune::all && !(retune == Retune::stale && resolution.is_stale());
}

TuneOutcome tune_once(State& state, const manifest::Op& op, const Problem& bucket, const TuneAsked& asked) {
  using Clock = std::chrono::steady_clock;
  const auto stored = [&] {
    return answer::resolve({op, state.context.info().facts, state.options.regime}, bucket, state.layers, false);
  };
  const auto stop_if_asked = [&] {
    const auto& own = state.options.stop_requested;
    if ((own && own()) || (asked.stop_requested && asked.stop_requested()))
      throw Error(ErrorKind::interrupted, fmt::format("{} {} is not tuned: the tune was asked to stop", op.name,
                                                      manifest::display_text(op, bucket)));
  };
  if (op.is_of_team() && asked.team == nullptr)
    throw Error(
        ErrorKind::bad_input,
        fmt::format("{} is tuned by all ranks of a team at once: launch it, or call Engine::prepare or a Tuner with "
                    "Options::team, on each",
                    op.name));
  const Clock::time_point begun = Clock::now();
  TuneOutcome outcome{TuneOutcome::End::found, stored()};
  if (!is_enough(outcome.resolution, asked.retune))
    WithinTune::refuse_within(state, fmt::format("{} {}", op.name, manifest::display_text(op, bucket)));
  const WithinTune within(state);
  Lease lease(state.layers, outcome.resolution.key, state.holder);
  bool is_told = false;
  while (!is_enough(outcome.resolution, asked.retune)) {
    stop_if_asked();
    const bool is_held = lease.acquire();
    outcome.resolution = stored();  // another process may have published it meanwhile
    if (is_held) break;
    if (!is_enough(outcome.resolution, asked.retune) && Clock::now() - begun >= asked.patience) {
      outcome.end = TuneOutcome::End::held_elsewhere;
      outcome.holder = lease.holder();
      return outcome;
    }
    if (!is_told && Clock::now() - begun >= untold_wait) {
      tell_who_is_waited_for(state, op, bucket, asked, lease.holder());
      is_told = true;
    }
    std::this_thread::sleep_for(lease_poll);
  }
  if (is_enough(outcome.resolution, asked.retune)) return outcome;
  const std::lock_guard lock(state.tune_mutex);
  stop_if_asked();
  if (!state.worker && asked.team == nullptr) state.worker = worker_for(state.options, state.context.info());
  if (!state.worker && asked.only_in_worker && asked.team == nullptr)
    throw Error(ErrorKind::bad_input, "kiln-worker is not there any more");
  tune::TuneRequest request = request_of(state, op, bucket, asked);
  request.stop_requested = [&lease, asks = request.stop_requested] {
    lease.renew_if_due();
    return asks && asks();
  };
  answer::Cubins& cubins = cubins_of(state, asked);
  const tune::TuneResult result = tune::tune_bucket(request, cubins);
  tune::publish(request, result, cubins);
  if (!result.warning.empty())
    state.warn(fmt::format("{} {}: {}", op.name, manifest::display_text(op, bucket), result.warning));
  outcome = {TuneOutcome::End::tuned, stored()};
  if (outcome.resolution.record)
    for (const std::string& each : wrong_throughout(state.layers.candidates_of(*outcome.resolution.record)))
      state.warn(fmt::format("{} {}: {}", op.name, manifest::display_text(op, bucket), each));
  if (asked.adopt && outcome.resolution.is_hit()) asked.adopt(outcome.resolution);
  state.counters.count_tune();
  return outcome;
}

void compile_ahead(State& state, const manifest::Op& op, const Problem& bucket, const TuneAsked& asked) try {
  const cuda::RelaxedCapture relaxed;
  const cuda::Context::Scope scope(state.context);
  const answer::Resolution stored =
      answer::resolve({op, state.context.info().facts, state.options.regime}, bucket, state.layers, false);
  if (!is_enough(stored, asked.retune)) tune::compile_ahead(state.tune_request(op, bucket), cubins_of(state, asked));
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
}

}  // namespace kiln::engine

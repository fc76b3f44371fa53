#include "engine/tune_once.hpp"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "engine/lease.hpp"
#include "engine/shared_answers.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "tune/tune_bucket.hpp"

namespace kiln::engine {
namespace {

/// The engine's request for the bucket, with the caller's callbacks added.
tune::TuneRequest request_of(EngineState& engine, const manifest::Op& op, const Problem& edge, const TuneAsked& asked) {
  tune::TuneRequest request = engine.tune_request(op, edge);
  request.worker = asked.team == nullptr ? engine.worker.get() : nullptr;
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

answer::Cubins& cubins_of(EngineState& engine, const TuneAsked& asked) {
  return asked.cubins != nullptr ? *asked.cubins : engine.cubins;
}

thread_local const WithinTune* innermost = nullptr;

constexpr const char* another_machine = "another machine";
constexpr auto untold_wait = std::chrono::milliseconds(500);  // most tunes end within it

void tell_who_is_waited_for(const EngineState& engine, const manifest::Op& op, const Problem& edge,
                            const TuneAsked& asked, const std::string& holder) {
  if (holder.empty()) return;  // free by now
  const std::string text = manifest::to_string(op, edge);
  const std::string reason =
      fmt::format("{} is tuning it; one that is stopped is waited for {} s at most", holder, lease_seconds);
  TuneEvent event;
  event.kind = TuneEvent::Kind::waiting;
  event.op = op.name;
  event.bucket = text;
  event.reason = reason;
  engine.tell(LogEvent::Kind::tune, op.name, text, reason);
  if (engine.options.on_tune) engine.options.on_tune(event);
  if (asked.on_event) asked.on_event(event);
}

/// The right to tune a bucket among the machines that share a store.
class SharedTurn {
 public:
  SharedTurn(SharedAnswers& shared, const manifest::Bucket& bucket) : shared_(shared), bucket_(bucket) {}
  ~SharedTurn() {
    if (is_ours_) shared_.release(bucket_);
  }
  SharedTurn(const SharedTurn&) = delete;
  SharedTurn& operator=(const SharedTurn&) = delete;
  SharedAnswers::Turn await(std::chrono::steady_clock::time_point end, const std::function<void()>& while_waiting) {
    const SharedAnswers::Turn turn = shared_.await_turn(bucket_, end, while_waiting);
    is_ours_ = turn == SharedAnswers::Turn::ours;
    return turn;
  }

 private:
  SharedAnswers& shared_;
  const manifest::Bucket bucket_;
  bool is_ours_ = false;
};

void tell_tuned(const EngineState& engine, const answer::Resolution& tuned,
                std::chrono::steady_clock::time_point begun) {
  if (!engine.options.on_log || !tuned.record) return;
  const store::Choice& choice = tuned.record->value.at_edge();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  engine.tell(LogEvent::Kind::tune, tuned.bucket.op->name, manifest::to_string(*tuned.bucket.op, tuned.bucket.edge),
              fmt::format("tuned in {} ms: {} {}, {:.2f} us", took.count(), choice.implementation, choice.config,
                          choice.cost_ns / 1000));
}

}  // namespace

WithinTune::WithinTune(const EngineState& engine) noexcept : engine_(engine), around_(innermost) { innermost = this; }

WithinTune::~WithinTune() { innermost = around_; }

bool WithinTune::is_within(const EngineState& engine) noexcept {
  for (const WithinTune* each = innermost; each != nullptr; each = each->around_)
    if (&each->engine_ == &engine) return true;
  return false;
}

void WithinTune::refuse_within(const EngineState& engine, const std::string& asked) {
  if (!is_within(engine)) return;
  throw Error(
      ErrorKind::bad_input,
      fmt::format(
          "{} was asked for in a callback of a tune (on_tune, on_step, on_compile or stop_requested), which it would wait for; ask once that tune is done, or of another engine",
          asked));
}

void EngineState::refuse_wait(const manifest::Bucket& bucket) const { WithinTune::refuse_within(*this, bucket.text()); }

std::vector<std::string> wrong_throughout(std::span<const store::TriedCandidate> candidates) {
  struct Tried {
    std::set<std::string_view> right, wrong;       // configs
    const store::TriedCandidate* first = nullptr;  // that was wrong
  };
  std::map<std::string_view, Tried> tried;
  for (const store::TriedCandidate& each : candidates) {
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

TuneOutcome tune_once(EngineState& engine, const manifest::Op& op, const Problem& edge, const TuneAsked& asked) {
  using Clock = std::chrono::steady_clock;
  const auto stored = [&] {
    return answer::resolve({op, engine.context.info().facts, engine.options.regime}, edge, engine.layers, false);
  };
  const auto stop_if_asked = [&] {
    const auto& own = engine.options.stop_requested;
    if ((own && own()) || (asked.stop_requested && asked.stop_requested()))
      throw Error(ErrorKind::interrupted, fmt::format("{} {} is not tuned: the tune was asked to stop", op.name,
                                                      manifest::display_text(op, edge)));
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
    WithinTune::refuse_within(engine, fmt::format("{} {}", op.name, manifest::display_text(op, edge)));
  const WithinTune within(engine);
  // The ranks of a team agree on what they find, which a store's answer to one of them would belie.
  SharedAnswers* const shared = op.is_of_team() ? nullptr : engine.shared.get();
  const bool may_be_shared = shared != nullptr && asked.retune == Retune::none;
  if (may_be_shared && !outcome.resolution.is_hit() && shared->bring(outcome.resolution.bucket))
    outcome.resolution = stored();
  Lease lease(engine.layers, outcome.resolution.key, engine.holder);
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
      tell_who_is_waited_for(engine, op, edge, asked, lease.holder());
      is_told = true;
    }
    std::this_thread::sleep_for(lease_poll);
  }
  if (is_enough(outcome.resolution, asked.retune)) return outcome;
  std::optional<SharedTurn> turn;
  if (may_be_shared) {
    turn.emplace(*shared, outcome.resolution.bucket);
    const auto while_waiting = [&] {
      stop_if_asked();
      lease.renew_if_due();
      if (is_told || Clock::now() - begun < untold_wait) return;
      tell_who_is_waited_for(engine, op, edge, asked, another_machine);
      is_told = true;
    };
    switch (turn->await(begun + asked.patience, while_waiting)) {
      case SharedAnswers::Turn::ours: break;
      case SharedAnswers::Turn::found:
        outcome.resolution = stored();
        if (outcome.resolution.is_hit()) return outcome;
        break;
      case SharedAnswers::Turn::elsewhere:
        outcome.end = TuneOutcome::End::held_elsewhere;
        outcome.holder = another_machine;
        return outcome;
    }
  }
  const std::lock_guard lock(engine.tune_mutex);
  stop_if_asked();
  if (!engine.worker && asked.team == nullptr) engine.worker = worker_for(engine.options, engine.context.info());
  if (!engine.worker && asked.only_in_worker && asked.team == nullptr)
    throw Error(ErrorKind::bad_input, "kiln-worker is not there any more");
  const std::string bucket = manifest::to_string(op, edge);
  engine.tell(LogEvent::Kind::tune, op.name, bucket, "its tune begins");
  tune::TuneRequest request = request_of(engine, op, edge, asked);
  request.stop_requested = [&lease, asks = request.stop_requested] {
    lease.renew_if_due();
    return asks && asks();
  };
  answer::Cubins& cubins = cubins_of(engine, asked);
  const tune::TuneResult result = tune::tune_bucket(request, cubins);
  std::vector<store::CubinRow> code = tune::publish(request, result, cubins);
  if (shared != nullptr) shared->publish(result.record, std::move(code));
  if (!result.warning.empty())
    engine.warn(fmt::format("{} {}: {}", op.name, manifest::display_text(op, edge), result.warning), op.name, bucket);
  outcome = {TuneOutcome::End::tuned, stored()};
  if (outcome.resolution.record)
    for (const std::string& each : wrong_throughout(engine.layers.candidates_of(*outcome.resolution.record)))
      engine.warn(fmt::format("{} {}: {}", op.name, manifest::display_text(op, edge), each), op.name, bucket);
  if (asked.adopt && outcome.resolution.is_hit()) asked.adopt(outcome.resolution);
  tell_tuned(engine, outcome.resolution, begun);
  engine.counters.count_tune();
  return outcome;
}

void compile_ahead(EngineState& engine, const manifest::Op& op, const Problem& edge, const TuneAsked& asked) try {
  const cuda::RelaxedCapture relaxed;
  const cuda::Context::Scope scope(engine.context);
  const answer::Resolution stored =
      answer::resolve({op, engine.context.info().facts, engine.options.regime}, edge, engine.layers, false);
  if (!is_enough(stored, asked.retune)) tune::compile_ahead(engine.tune_request(op, edge), cubins_of(engine, asked));
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
}

}  // namespace kiln::engine

#include "engine/team/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/state.hpp"
#include "engine/team/share_code.hpp"
#include "engine/team/stand_in.hpp"
#include "engine/tune_once.hpp"
#include "jit/library.hpp"
#include "kiln/error.hpp"
#include "process/child.hpp"
#include "process/message.hpp"
#include "store/json.hpp"
#include "team/exchange.hpp"
#include "tune/team_bench.hpp"

namespace kiln::engine {
namespace {

using Json = nlohmann::json;

/// The configs of the record, and the code that they were tuned from. Empty for a miss, and for a record to be tuned
/// again.
std::string decision_of(const answer::Resolution& resolution, Retune retune) {
  if (!is_enough(resolution, retune)) return "";
  std::string text;
  for (const store::Choice& each : resolution.record->value.choices)
    text += fmt::format("{} {} {} {};", each.sizes, each.implementation, each.config, each.source_digest);
  return text;
}

/// What a rank asks for where no rank has a record.
enum class OnMiss : std::uint8_t { fail, stand_in, tune };

/// What a rank tells the others before any of them makes a plan.
struct Standpoint {
  std::string op, key, decision;
  bool tunes = false;
  bool takes_fallbacks = false;
  std::string failure;  // why it can make none; `kind` says what sort of error it is
  int kind = 0;
  std::string nccl;        // its version, where this rank has it and the op may use it; else empty
  bool uses_nccl = false;  // the record does
};

/// NCCL's version, where this rank has it and some implementation of the op would use it for the problem; else empty.
std::string nccl_for(const plan::OpState& op_state, const Problem& problem) {
  const bool is_asked = std::ranges::any_of(op_state.op.implementations, [&](const manifest::Implementation& each) {
    return each.is_collective() && !manifest::why_not_eligible(op_state.site(), each, problem);
  });
  return is_asked ? jit::library_identity("nccl") : std::string();
}

bool uses_nccl(const plan::OpState& op_state, const answer::Resolution& resolution) {
  return resolution.is_hit() && std::ranges::any_of(resolution.record->value.choices, [&](const store::Choice& each) {
           const manifest::Implementation* implementation = op_state.op.find(each.implementation);
           return implementation != nullptr && implementation->is_collective();
         });
}

std::vector<Standpoint> exchange(team::Member& team, const Standpoint& own) {
  const Json told{{"op", own.op},
                  {"key", own.key},
                  {"decision", own.decision},
                  {"tunes", own.tunes},
                  {"takes_fallbacks", own.takes_fallbacks},
                  {"failure", own.failure},
                  {"kind", own.kind},
                  {"nccl", own.nccl},
                  {"uses_nccl", own.uses_nccl}};
  std::vector<Standpoint> all;
  for (const std::string& each : team::gather_texts(team.rendezvous(), process::packed(told))) {
    const Json json = process::unpacked(each);
    all.push_back({json.at("op"), json.at("key"), json.at("decision"), json.at("tunes"), json.at("takes_fallbacks"),
                   json.at("failure"), json.at("kind"), json.at("nccl"), json.at("uses_nccl")});
  }
  return all;
}

/// Throws on all ranks alike.
void require_same_bucket(const team::Member& team, std::span<const Standpoint> all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].failure.empty())
      throw Error(static_cast<ErrorKind>(all[rank].kind),
                  fmt::format("team '{}': rank {}: {}", team.name(), rank, all[rank].failure));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].key != all.front().key)
      throw Error(
          ErrorKind::bad_input,
          fmt::format(
              "team '{}': rank {} launches {}, rank 0 {}; all ranks launch the same ops on problems of the same buckets, in the same order",
              team.name(), rank, all[rank].key, all.front().key));
}

/// Launches of the team that wait behind other work would run among the trials, whose faults end with a reset.
void end_own_launches(const EngineState& engine, team::Member& team) {
  team::on_all_ranks(team.rendezvous(), "waiting for launches before a tune", [&] {
    cuda::check(cuda::Driver::get().cuCtxSynchronize(), "waiting for the device");
    plan::require_sound_team(engine);
  });
}

/// Where this rank's candidates may run. Throws nothing but std::bad_alloc: the other ranks wait for this one.
tune::RankTrialSettings trial_settings(EngineState& engine, const team::Member& team) {
  const Options& options = engine.options;
  tune::RankTrialSettings settings;
  settings.limits.trial = options.candidate_limit;
  settings.is_required = options.isolation == Isolation::worker;
  if (options.isolation == Isolation::in_process)
    settings.why_none = "Options::isolation is in_process";
  else
    try {
      settings.why_none = why_no_worker(options, engine.context.info());
      if (settings.why_none.empty()) settings.program = process::find_worker(options.worker);
    } catch (const std::exception& error) {
      settings.why_none = error.what();
    }
  if (settings.program.empty() && settings.why_none.empty())
    settings.why_none = "kiln-worker was not found; name it in Options::worker or KILN_WORKER";
  const bool is_expected = settings.program.empty() || team.link() == manifest::TeamLink::network;
  if (options.isolation != Isolation::in_process)
    settings.on_news = [&engine, is_expected](const std::string& text) {
      if (is_expected)
        engine.tell(LogEvent::Kind::tune, {}, {}, text);
      else
        engine.warn(text);
    };
  return settings;
}

tune::RankTrials& rank_trials_of(EngineState& engine, team::Member& team) {
  if (!engine.rank_trials)
    engine.rank_trials =
        std::make_unique<tune::RankTrials>(team, engine.context.info().ordinal, trial_settings(engine, team));
  return *engine.rank_trials;
}

/// Collective. Returns what the tune threw, on the rank that tunes: the others must hear of it before anybody leaves.
std::exception_ptr tune_together(plan::OpState& op_state, team::Member& team, const answer::Resolution& missed,
                                 TuneAsked asked) {
  EngineState& engine = engine_of(op_state);
  end_own_launches(engine, team);
  tune::RankTrials& trials = rank_trials_of(engine, team);
  std::exception_ptr failure;
  if (team.rank() != 0) {
    tune::serve_team_trials(trials, 0);
  } else {
    try {
      asked.team = &trials;
      static_cast<void>(tune_once(engine, op_state.op, missed.bucket.edge, asked));
    } catch (...) {
      failure = std::current_exception();
    }
    tune::end_team_trials(trials);
  }
  if (engine.keeps_trial_workers == 0) trials.stop();
  return failure;
}

/// What this rank brings to the agreement, its own failure too: the others must not wait for it.
Standpoint standpoint_of(const plan::OpState& op_state, const Problem& problem, OnMiss asks, Retune retune) {
  Standpoint own;
  own.op = op_state.op.name;
  own.tunes = asks == OnMiss::tune;
  own.takes_fallbacks = asks == OnMiss::stand_in;
  try {
    plan::require_team(op_state, problem);
    plan::require_sound_team(engine_of(op_state));
    if (const auto why = answer::why_network_serves_not(op_state.site(), problem))
      throw Error(ErrorKind::bad_input, *why);
    const answer::Resolution resolution = op_state.resolve(problem, false);
    own.key = resolution.key;
    own.decision = decision_of(resolution, retune);
    own.nccl = nccl_for(op_state, problem);
    own.uses_nccl = uses_nccl(op_state, resolution);
    if (resolution.miss) op_state.owner.counters.count(*resolution.miss);
  } catch (const Error& error) {
    own.failure = error.what();
    own.kind = static_cast<int>(error.kind());
  } catch (const std::exception& error) {
    own.failure = error.what();
    own.kind = static_cast<int>(ErrorKind::io);
  }
  return own;
}

/// Throws on all ranks alike: over a network there is nothing but NCCL.
[[noreturn]] void fail_without_nccl(const team::Member& team, std::span<const Standpoint> all) {
  std::string why = team.why_no_nccl();
  if (why.empty()) {
    why = "the ranks do not have the same version of it:";
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      why += fmt::format("{} rank {} has {}", rank == 0 ? "" : ",", rank,
                         all[rank].nccl.empty() ? "none" : all[rank].nccl);
    why += "; see KILN_NCCL_LIBRARY";
  }
  throw Error(ErrorKind::no_nccl,
              fmt::format("team '{}' met at an address and speaks through NCCL alone: {}", team.name(), why));
}

/// Collective. Whether NCCL may serve: all ranks have the same version, and a communicator, which a tune and a record
/// that names NCCL need. Throws Error(no_nccl) on all ranks where it may not and they have nothing else.
bool agree_on_nccl(EngineState& engine, team::Member& team, std::span<const Standpoint> all) {
  const bool is_network = team.link() == manifest::TeamLink::network;
  const bool is_miss = std::ranges::all_of(all, [](const Standpoint& each) { return each.decision.empty(); });
  const bool is_needed = is_network || (is_miss && !std::ranges::all_of(all, &Standpoint::takes_fallbacks)) ||
                         std::ranges::any_of(all, &Standpoint::uses_nccl);
  const std::string& version = all.front().nccl;
  const bool is_here =
      !version.empty() && std::ranges::all_of(all, [&](const Standpoint& each) { return each.nccl == version; });
  if (is_network && !is_here) fail_without_nccl(team, all);
  if (!is_needed || !is_here) return false;
  const bool is_open = team.open_nccl();
  if (is_network && !is_open) fail_without_nccl(team, all);
  if (!is_open) engine.warn(fmt::format("team '{}' does without NCCL: {}", team.name(), team.why_no_nccl()));
  return is_open;
}

/// The bucket's answers that all ranks can give. Where not all can use NCCL, none does.
answer::Resolution resolve_for_all(const plan::OpState& op_state, const Problem& problem, bool with_nccl) {
  answer::Resolution resolution = op_state.resolve(problem, false);
  if (with_nccl) return resolution;
  const auto left_out = std::erase_if(resolution.answers,
                                      [](const answer::Answer& each) { return each.implementation->is_collective(); });
  if (left_out > 0 && resolution.unusable.empty()) resolution.unusable = "not all ranks of the team can use NCCL";
  return resolution;
}

}  // namespace

namespace {

struct Agreement {
  TuneOutcome outcome;
  bool had_record = false;  // this rank, before
};

/// agree_on_record(), for who holds the team's collectives(). OnMiss::stand_in: the resolution is no hit where no rank
/// has a record and all ask for the same.
Agreement agree(plan::OpState& op_state, team::Member& team, const Problem& problem, OnMiss asks,
                const TuneAsked& asked) {
  Agreement agreement;
  TuneOutcome& outcome = agreement.outcome;
  answer::Resolution& resolution = outcome.resolution;
  const std::vector<Standpoint> all = exchange(team, standpoint_of(op_state, problem, asks, asked.retune));
  require_same_bucket(team, all);
  agreement.had_record = !all[static_cast<std::size_t>(team.rank())].decision.empty();
  const team::Patience patience(team.rendezvous());
  const bool with_nccl = agree_on_nccl(engine_of(op_state), team, all);
  team::on_all_ranks(team.rendezvous(), "looking for its record",
                     [&] { resolution = resolve_for_all(op_state, problem, with_nccl); });
  const auto hit = std::ranges::find_if(all, [](const Standpoint& each) { return !each.decision.empty(); });
  if (hit == all.end() && std::ranges::all_of(all, &Standpoint::takes_fallbacks)) {
    resolution = agree_on_stand_in(op_state, team, problem);
    return agreement;
  }
  const bool is_same = hit != all.end() &&
                       std::ranges::all_of(all, [&](const Standpoint& each) { return each.decision == hit->decision; });
  if (!is_same) {
    const auto source = hit == all.end() ? 0 : static_cast<int>(hit - all.begin());
    std::exception_ptr failure;
    if (hit == all.end() && std::ranges::all_of(all, &Standpoint::tunes)) {
      failure = tune_together(op_state, team, resolution, asked);
      outcome.end = TuneOutcome::End::tuned;
    }
    std::string record;
    team::on_all_ranks(team.rendezvous(), "bringing a record that all ranks can serve", [&] {
      if (failure) std::rethrow_exception(failure);
      if (team.rank() != source) return;
      resolution = resolve_for_all(op_state, problem, with_nccl);
      if (!resolution.is_hit())
        throw Error(
            ErrorKind::not_tuned,
            fmt::format("no rank has a record for {}; on a miss, neither do all ranks tune nor do all take what "
                        "stands in for one",
                        resolution.key));
      record = store::to_json(resolution.record->value);
    });
    record = team::broadcast_text(team.rendezvous(), source, record);
    team::on_all_ranks(team.rendezvous(), "storing the team's record", [&] {
      const store::Record told = store::record_from_json(record);
      resolution = resolve_for_all(op_state, problem, with_nccl);
      // Ranks may share an overlay. What is told lacks the candidates that the record there has.
      if (resolution.is_hit() && store::to_json(resolution.record->value) == record) return;
      op_state.owner.layers.put_all({&told, 1}, {}, store::Existing::replace);
      resolution = resolve_for_all(op_state, problem, with_nccl);
    });
  }
  return agreement;
}

}  // namespace

KeptTrialWorkers::KeptTrialWorkers(EngineState& engine) : engine_(engine) { ++engine_.keeps_trial_workers; }

KeptTrialWorkers::~KeptTrialWorkers() {
  // A tune around this, in a callback of which it is, holds the lock and ends the workers.
  if (--engine_.keeps_trial_workers > 0 || engine_.team == nullptr || WithinTune::is_within(engine_)) return;
  const std::lock_guard lock(engine_.team->collectives());
  if (engine_.keeps_trial_workers == 0 && engine_.rank_trials) engine_.rank_trials->stop();
}

TuneOutcome agree_on_record(plan::OpState& op_state, const Problem& problem, bool tunes, const TuneAsked& asked) {
  if (op_state.owner.team == nullptr) plan::require_team(op_state, problem);  // throws
  const std::lock_guard lock(op_state.owner.team->collectives());
  return agree(op_state, *op_state.owner.team, problem, tunes ? OnMiss::tune : OnMiss::fail, asked).outcome;
}

std::unique_ptr<plan::BucketPlans> build_with_team(plan::OpState& op_state, const Problem& problem) {
  if (op_state.owner.team == nullptr) plan::require_team(op_state, problem);  // throws
  team::Member& team = *op_state.owner.team;
  const std::lock_guard lock(team.collectives());
  const OnMiss asks = op_state.owner.options.on_miss == MissPolicy::tune ? OnMiss::tune
                      : op_state.takes_fallbacks()                       ? OnMiss::stand_in
                                                                         : OnMiss::fail;
  auto [outcome, had_record] = agree(op_state, team, problem, asks, {});
  answer::Resolution& resolution = outcome.resolution;
  const team::Patience patience(team.rendezvous());
  share_machine_code(op_state, team, resolution, had_record);
  std::unique_ptr<plan::BucketPlans> plans;
  team::on_all_ranks(team.rendezvous(), "loading the team's plan", [&] {
    if (resolution.is_hit() && resolution.answers.empty())
      throw Error(ErrorKind::not_tuned, resolution.unusable.empty() ? resolution.why_none : resolution.unusable);
    plans = op_state.plans.load(std::move(resolution));
  });
  return plans;
}

}  // namespace kiln::engine

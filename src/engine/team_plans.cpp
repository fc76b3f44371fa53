#include "engine/team_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/state.hpp"
#include "engine/tuning.hpp"
#include "kiln/error.hpp"
#include "store/json.hpp"
#include "team/exchange.hpp"
#include "team/on_all_ranks.hpp"
#include "tune/team_bench.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::engine {
namespace {

using Json = nlohmann::json;

std::string packed(const Json& json) {
  const std::vector<std::uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

/// The configs of the record, and the code that they were tuned from. Empty for a miss.
std::string decision_of(const Resolution& resolution) {
  if (!resolution.is_hit()) return "";
  std::string text;
  for (const store::Choice& each : resolution.record->value.choices)
    text += fmt::format("{} {} {} {};", each.sizes, each.implementation, each.config, each.source_digest);
  return text;
}

/// What a rank tells the others before any of them makes a plan.
struct Standpoint {
  std::string op, key, decision;
  bool tunes = false;
};

std::vector<Standpoint> exchange(team::Member& team, const Standpoint& own) {
  const Json told{{"op", own.op}, {"key", own.key}, {"decision", own.decision}, {"tunes", own.tunes}};
  std::vector<Standpoint> all;
  for (const std::string& each : team::gather_texts(team.rendezvous(), packed(told))) {
    const Json json = Json::from_cbor(each);
    all.push_back({json.at("op"), json.at("key"), json.at("decision"), json.at("tunes")});
  }
  return all;
}

void require_same_bucket(const team::Member& team, std::span<const Standpoint> all) {
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].key != all.front().key)
      throw Error(
          ErrorKind::bad_input,
          fmt::format(
              "team '{}': rank {} launches {}, rank 0 {}; all ranks launch the same ops on problems of the same buckets, in the same order",
              team.name(), rank, all[rank].key, all.front().key));
}

void tune_together(OpState& state, team::Member& team, const Resolution& missed) {
  if (team.rank() != 0) {
    tune::serve_team_trials(team, 0, state.engine.context);
    return;
  }
  struct End {
    team::Member& team;
    ~End() {
      try {
        tune::end_team_trials(team);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next collective throws it again
      }
    }
  } const end{team};
  TuneAsked asked;
  asked.team = &team;
  static_cast<void>(tune_once(state.engine, state.op, missed.bucket, asked));
}

/// The record and its machine code, as the other ranks store them.
Json rows_of(OpState& state, const Resolution& resolution) {
  Json rows{{"record", store::to_json(resolution.record->value)}, {"cubins", Json::array()}};
  for (const jit::Specialisation& each : specialisations_of(state.op, resolution, state.device(), state.engine.arch()))
    rows["cubins"].push_back(tune::to_json(tune::to_row(each, state.engine.cubins.get(each))));
  return rows;
}

void store_rows(OpState& state, const Json& rows) {
  const store::Record record = store::record_from_json(rows.at("record").get<std::string>());
  std::vector<store::CubinRow> cubins;
  for (const Json& each : rows.at("cubins")) cubins.push_back(tune::cubin_from_json(each));
  state.engine.layers.put_all({&record, 1}, cubins, store::Existing::replace);
}

}  // namespace

team::Member& require_team(const OpState& state, const Problem& problem) {
  const auto axis = static_cast<std::size_t>(state.op.team_axis());
  if (state.engine.team == nullptr)
    throw Error(
        ErrorKind::bad_input,
        fmt::format("{} is computed by a team of ranks, and this engine has none; set Options::team", state.op.name));
  if (problem.axes[axis] != state.engine.team->world())
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: {} is {} in the problem, and the engine's team '{}' has {} ranks", state.op.name,
                            state.op.axes[axis].name, problem.axes[axis], state.engine.team->name(),
                            state.engine.team->world()));
  return *state.engine.team;
}

std::unique_ptr<BucketPlans> build_with_team(OpState& state, const Problem& problem) {
  team::Member& team = require_team(state, problem);
  const std::lock_guard lock(state.engine.team_mutex);
  Resolution resolution = state.resolve(problem, false);
  const Standpoint own{state.op.name, resolution.key, decision_of(resolution),
                       state.engine.options.on_miss == MissPolicy::tune};
  const std::vector<Standpoint> all = exchange(team, own);
  require_same_bucket(team, all);
  const auto hit = std::ranges::find_if(all, [](const Standpoint& each) { return !each.decision.empty(); });
  const bool is_same = std::ranges::all_of(all, [&](const Standpoint& each) { return each.decision == hit->decision; });
  if (hit == all.end() || !is_same) {
    const auto source = hit == all.end() ? 0 : static_cast<int>(hit - all.begin());
    if (hit == all.end() && std::ranges::all_of(all, &Standpoint::tunes)) tune_together(state, team, resolution);
    Json rows;
    team::on_all_ranks(team.rendezvous(), "looking for a record that all ranks can serve", [&] {
      if (team.rank() != source) return;
      resolution = state.resolve(problem, false);
      if (!resolution.is_hit())
        throw Error(ErrorKind::not_tuned,
                    fmt::format("no rank has a record for {}, and not all ranks tune on a miss", resolution.key));
      rows = rows_of(state, resolution);
    });
    const std::string told = team::broadcast_text(team.rendezvous(), source, packed(rows));
    team::on_all_ranks(team.rendezvous(), "storing the team's record", [&] {
      if (team.rank() != source) store_rows(state, Json::from_cbor(told));
      resolution = state.resolve(problem, false);
    });
  }
  std::unique_ptr<BucketPlans> plans;
  team::on_all_ranks(team.rendezvous(), "loading the team's plan", [&] {
    if (resolution.is_hit() && resolution.answers.empty())
      throw Error(ErrorKind::not_tuned, resolution.unusable.empty() ? resolution.why_none : resolution.unusable);
    plans = state.plans.load(std::move(resolution));
  });
  return plans;
}

void require_sound_team(const State& engine) {
  if (!engine.team->has_fault()) [[likely]]
    return;
  const auto fault = engine.team->fault();
  throw Error(ErrorKind::team_failed,
              fmt::format("team '{}': {}. The outputs of that launch are NaN; Team::reset on all ranks serves again, "
                          "or a new Team where a rank has ended",
                          engine.team->name(), team::text_of(*fault, engine.team->rank(), engine.team->timeout())));
}

team::TeamBinding binding_of(const team::Member& team, const Resolution& resolution, const Answer& answer) {
  std::uint32_t digest = 2166136261U;  // FNV-1a
  for (const char each : resolution.key + name_of(answer))
    digest = (digest ^ static_cast<unsigned char>(each)) * 16777619U;
  return team.binding(digest ^ digest >> 16);
}

}  // namespace kiln::engine

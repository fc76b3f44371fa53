#include "engine/team/stand_in.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "answer/machine_code.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "process/message.hpp"
#include "team/exchange.hpp"

namespace kiln::engine {
namespace {

using Json = nlohmann::json;

/// What this rank would launch without a record, as the others can read it; null where there is nothing.
Json proposal_of(const plan::OpState& op_state, const answer::Resolution& resolution) {
  if (resolution.answers.empty()) return nullptr;
  const answer::Answer& first = resolution.answers.front();
  return {{"implementation", first.implementation->name},
          {"config", manifest::to_string(*first.implementation, first.config)},
          {"origin", static_cast<int>(first.origin)},
          {"cost_ns", first.cost_ns},
          {"timed_at", first.timed_at},
          {"compiler", first.compiler},
          {"distance", first.distance},
          {"why", fmt::format("rank {} proposed it: {}", op_state.owner.team->rank(), first.why)}};
}

/// Throws Error(bad_input) for what this rank's op does not have, or may not launch.
answer::Answer taken(const answer::Resolution& resolution, const Json& told) {
  const manifest::Bucket& bucket = resolution.bucket;
  const std::string name = told.at("implementation"), config = told.at("config");
  const manifest::Implementation* implementation = bucket.op->find(name);
  const auto parsed = implementation == nullptr ? std::nullopt : manifest::parse_config(*implementation, config);
  if (!parsed)
    throw Error(ErrorKind::bad_input,
                fmt::format("{} has no config '{}' of '{}', which another rank proposed; all ranks "
                            "load the same templates",
                            bucket.op->name, config, name));
  answer::Answer answer =
      answer::answer_without_record(static_cast<Origin>(told.at("origin").get<int>()), {implementation, *parsed},
                                    manifest::whole_of(*bucket.op, bucket.edge), told.at("why"));
  answer.cost_ns = told.at("cost_ns");
  answer.timed_at = told.at("timed_at");
  answer.compiler = told.at("compiler");
  answer.distance = told.at("distance");
  if (const auto broken = answer.broken_constraint(bucket, answer.at))
    throw Error(ErrorKind::bad_input,
                fmt::format("{} {}, which another rank proposed, breaks '{}' here", name, config, *broken));
  return answer;
}

}  // namespace

answer::Resolution agree_on_stand_in(plan::OpState& op_state, team::Member& team, const Problem& problem) {
  answer::Resolution resolution;
  Json own;
  team::on_all_ranks(team.rendezvous(), "looking for a stand-in", [&] {
    resolution = op_state.resolve(problem, true);
    answer::leave_servable(resolution, op_state.owner.arch(), op_state.owner.cubins);
    own = proposal_of(op_state, resolution);
  });
  std::vector<Json> all;
  for (const std::string& each : team::gather_texts(team.rendezvous(), process::packed(own)))
    all.push_back(process::unpacked(each));
  auto chosen = std::ranges::find_if(
      all, [](const Json& each) { return !each.is_null() && each.at("origin") == static_cast<int>(Origin::nearest); });
  if (chosen == all.end()) chosen = std::ranges::find_if(all, [](const Json& each) { return !each.is_null(); });
  team::on_all_ranks(team.rendezvous(), "taking the team's stand-in", [&] {
    if (chosen == all.end())
      throw Error(ErrorKind::not_tuned, fmt::format("no rank has a record for {}, and nothing stands in: {}",
                                                    resolution.key, resolution.why_none));
    answer::Answer answer = taken(resolution, *chosen);
    resolution.answers.clear();
    resolution.answers.push_back(std::move(answer));
  });
  return resolution;
}

}  // namespace kiln::engine

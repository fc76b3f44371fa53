#include "engine/team/share_code.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "answer/machine_code.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "process/message.hpp"
#include "team/exchange.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::engine {
namespace {

using Json = nlohmann::json;

/// Machine code that a rank has.
struct Offer {
  int rank = 0;
  std::string key, compiler;
  std::string digest;  // of the row
};

/// What an answer needs on this rank.
struct Need {
  answer::CodeLookup code;
  std::optional<answer::KeyedCubin> found{};
  std::optional<int> source{};  // the rank that gives it
  std::string key{};            // of the code that is given
};

/// By which code is known to be the offered one. The key covers what it was compiled from.
std::string digest_of(const store::CubinRow& row) {
  manifest::Hasher hasher;
  hasher.field(row.key).field(row.compiler);
  for (const std::string& name : row.lowered_names) hasher.field(name);
  return manifest::to_hex(hasher.field(row.image).finish());
}

std::vector<Offer> offers_of(const std::vector<Json>& told) {
  std::vector<Offer> offers;
  for (std::size_t rank = 0; rank < told.size(); ++rank)
    for (const Json& each : told[rank].at("offers"))
      offers.push_back({static_cast<int>(rank), each.at(0), each.at(1), each.at(2)});
  return offers;
}

/// What this rank has, lacks, takes and gives.
class Sharing {
 public:
  Sharing(plan::OpState& op_state, team::Member& team)
      : state_(op_state), team_(team), cubins_(op_state.owner.cubins) {}

  void look(const answer::Resolution& resolution, bool had_record) {
    for (const answer::Answer& each : resolution.answers) {
      if (!each.implementation->has_kernels()) continue;
      try {
        store::Counters met;
        Need& need = needs_.emplace_back(Need{{state_.site(), each, [this] { return state_.owner.arch(); }}});
        need.found = need.code.find_serving(cubins_, &met);
        if (had_record && !need.found) state_.owner.counters.count(answer::reason_of(met, answer::Miss::no_cubin));
      } catch (const Error& error) {  // refused sources, which plan::PlanStore::load may do without
        if (error.kind() != ErrorKind::compile_failed) throw;
      }
    }
  }

  [[nodiscard]] bool has_all() const {
    return std::ranges::all_of(needs_, [](const Need& each) { return each.found.has_value(); });
  }

  [[nodiscard]] Json offers() const {
    Json told = Json::array();
    for (const Need& each : needs_) {
      if (!each.found) continue;
      const store::CubinRow row = row_of(each);
      told.push_back({manifest::to_hex(row.key), row.compiler, digest_of(row)});
    }
    return told;
  }

  /// Takes each need from the lowest rank that offers it.
  void choose(std::vector<Offer> offers) {
    offers_ = std::move(offers);
    for (Need& each : needs_) {
      if (each.found) continue;
      const auto offer = std::ranges::find_if(offers_, [&](const Offer& of) { return serves(each, of); });
      if (offer == offers_.end()) continue;
      each.source = offer->rank;
      each.key = offer->key;
    }
  }

  /// The keys that this rank would have to compile.
  [[nodiscard]] Json compiles() {
    Json told = Json::array();
    if (!cubins_.can_compile()) return told;
    for (Need& each : needs_) {
      if (each.found || each.source) continue;
      each.key = manifest::to_hex(jit::cubin_key(each.code.here(), jit::compiler_identity()));
      told.push_back(each.key);
    }
    return told;
  }

  /// What no rank has comes from the lowest of those that would compile it: `compilers`, by rank.
  void choose_compilers(const std::vector<Json>& compilers) {
    for (Need& each : needs_) {
      if (each.found || each.source || each.key.empty()) continue;
      const auto lowest = std::ranges::find_if(
          compilers, [&](const Json& keys) { return std::ranges::find(keys, Json(each.key)) != keys.end(); });
      each.source = static_cast<int>(lowest - compilers.begin());
    }
  }

  /// Leaves a failure to PlanStore::load, which knows what can be done without.
  void compile_own() {
    for (Need& each : needs_) {
      if (each.found || each.source != team_.rank()) continue;
      try {
        each.found = cubins_.compile_and_keep(each.code.here());
      } catch (const std::exception&) {
        each.source.reset();
      }
    }
  }

  /// What this rank takes of each: [rank, key].
  [[nodiscard]] Json wishes() const {
    Json told = Json::array();
    for (const Need& each : needs_)
      if (!each.found && each.source) told.push_back({*each.source, each.key});
    return told;
  }

  /// The rows that others wish of this rank.
  [[nodiscard]] Json rows_for(const std::vector<Json>& wishes) const {
    Json rows = Json::array();
    for (const Need& each : needs_) {
      if (!each.found) continue;
      const Json wish{team_.rank(), manifest::to_hex(each.found->key)};
      if (std::ranges::any_of(wishes, [&](const Json& of) { return std::ranges::find(of, wish) != of.end(); }))
        rows.push_back(tune::to_json(row_of(each)));
    }
    return rows;
  }

  void store(const std::vector<Json>& given) {
    std::vector<store::CubinRow> taken;
    for (const Need& each : needs_) {
      if (each.found || !each.source) continue;
      for (const Json& json : given.at(static_cast<std::size_t>(*each.source))) {
        store::CubinRow row = tune::cubin_from_json(json);
        if (manifest::to_hex(row.key) != each.key) continue;
        if (is_offered(*each.source, row)) {
          taken.push_back(std::move(row));
        } else {
          state_.owner.warn(fmt::format("team '{}': the machine code of {} that rank {} sent is not what it offered",
                                        team_.name(), each.code.timed().label, *each.source));
        }
      }
    }
    if (!taken.empty()) state_.owner.layers.put_all({}, taken, store::Existing::replace);
  }

 private:
  [[nodiscard]] bool serves(Need& need, const Offer& offer) const {
    return offer.key == manifest::to_hex(jit::cubin_key(need.code.timed(), offer.compiler)) ||
           offer.key == manifest::to_hex(jit::cubin_key(need.code.here(), offer.compiler));
  }

  /// Code that its rank has just compiled was not offered.
  [[nodiscard]] bool is_offered(int rank, const store::CubinRow& row) const {
    const std::string key = manifest::to_hex(row.key);
    const auto offer =
        std::ranges::find_if(offers_, [&](const Offer& each) { return each.rank == rank && each.key == key; });
    return offer == offers_.end() || offer->digest == digest_of(row);
  }

  static store::CubinRow row_of(const Need& need) { return answer::to_row(need.code.of(*need.found), *need.found); }

  plan::OpState& state_;
  team::Member& team_;
  answer::Cubins& cubins_;
  std::vector<Need> needs_;
  std::vector<Offer> offers_;  // the lowest rank's first
};

std::vector<Json> gather(team::Member& team, const Json& own) {
  std::vector<Json> all;
  for (const std::string& each : team::gather_texts(team.rendezvous(), process::packed(own)))
    all.push_back(process::unpacked(each));
  return all;
}

}  // namespace

void share_machine_code(plan::OpState& op_state, team::Member& team, const answer::Resolution& resolution,
                        bool had_record) {
  Sharing sharing(op_state, team);
  team::on_all_ranks(team.rendezvous(), "looking for machine code", [&] { sharing.look(resolution, had_record); });
  const std::vector<Json> told = gather(team, {{"has_all", sharing.has_all()}, {"offers", sharing.offers()}});
  if (std::ranges::all_of(told, [](const Json& each) { return each.at("has_all").get<bool>(); })) return;
  team::on_all_ranks(team.rendezvous(), "choosing machine code", [&] { sharing.choose(offers_of(told)); });
  const std::vector<Json> compiles = gather(team, sharing.compiles());
  sharing.choose_compilers(compiles);
  sharing.compile_own();
  const std::vector<Json> rows = gather(team, sharing.rows_for(gather(team, sharing.wishes())));
  team::on_all_ranks(team.rendezvous(), "storing machine code", [&] { sharing.store(rows); });
}

}  // namespace kiln::engine

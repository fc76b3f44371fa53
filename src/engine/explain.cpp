#include "engine/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/lookup.hpp"
#include "jit/executable.hpp"
#include "spec/key.hpp"
#include "tune/guess.hpp"
#include "tune/model.hpp"
#include "tune/slowdown.hpp"

namespace kiln::engine {
namespace {

std::string triple(const std::array<spec::Expression, 3>& expressions, std::span<const std::int64_t> frame) {
  std::string text;
  for (const spec::Expression& each : expressions) {
    const spec::Value value = each.evaluate(frame);
    text += value.ok() ? fmt::format(" {}", value.number) : fmt::format(" ({})", to_string(value.status));
  }
  return text;
}

std::vector<std::string> passes_of(const spec::Op& op, const Lookup& lookup, const Problem& problem,
                                   const spec::DeviceFacts& device) {
  if (lookup.implementation->is_library()) return {"cublasLtMatmul"};
  const auto frame = spec::make_frame(op, lookup.implementation, problem, device, lookup.config);
  const auto names = spec::name_expressions(op, lookup.implementation->passes, lookup.implementation->symbols, frame);
  std::vector<std::string> passes;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const spec::Pass& pass = lookup.implementation->passes[i];
    const bool early = pass.programmatic.evaluate(frame).truth() && device.sm() >= spec::first_programmatic_sm;
    passes.push_back(fmt::format("{} grid{} block{} cluster{} shared {}{}", names[i], triple(pass.grid, frame),
                                 triple(pass.block, frame), triple(pass.cluster, frame),
                                 pass.shared.evaluate(frame).number, early ? " programmatic" : ""));
  }
  return passes;
}

LayerAnswer answer_of(const store::Layer& layer, const Lookup& lookup) {
  LayerAnswer answer;
  answer.layer = fmt::format("{} {}", layer.kind == store::LayerKind::overlay ? "overlay" : "base",
                             layer.path.empty() ? "(in memory)" : layer.path.string());
  answer.trust = layer.trust;
  if (!layer.file) {
    answer.found = "not opened: " + layer.refused;
    return answer;
  }
  const auto record = layer.file->find_record(lookup.key);
  answer.found = record ? fmt::format("record {} {}, {:.2f} us over {} samples", record->implementation, record->config,
                                      record->cost_ns / 1000, record->samples)
                        : "nothing";
  return answer;
}

std::string name_of(const spec::Implementation& implementation, const spec::Config& config) {
  return fmt::format("{} {}", implementation.name, spec::to_string(implementation, config));
}

/// look_up() answers for the bucket. At the real sizes its config may not be legal; the call lane then takes its runner-up or the first
/// default that is.
void fall_back_at(Lookup& lookup, const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device) {
  if (lookup.implementation == nullptr) return;
  const auto broken = spec::broken_constraint(op, *lookup.implementation, problem, device, lookup.config);
  if (!broken) return;
  const std::string refused =
      fmt::format("{}, from the {}, breaks the constraint '{}' at this size",
                  name_of(*lookup.implementation, lookup.config), to_string(lookup.origin), *broken);
  if (lookup.runner_up && !spec::broken_constraint(op, *lookup.runner_up->usable.implementation, problem, device,
                                                   lookup.runner_up->usable.config)) {
    lookup = without_library(lookup);
    lookup.why = refused + "; " + lookup.why;
    return;
  }
  tune::Usable standing_in = tune::default_for(op, problem, device);
  lookup.why = refused + "; " +
               (standing_in.implementation != nullptr ? "the op's first legal default serves" : standing_in.why_not);
  lookup.implementation = standing_in.implementation;
  lookup.config = std::move(standing_in.config);
  lookup.origin = Origin::default_;
  lookup.stale = false;
  lookup.cost_ns = 0;
  lookup.runner_up.reset();
}

/// Empty for an implementation that is no library's, and for one whose library is here.
std::string why_missing(const spec::Implementation& implementation) {
  const bool is_here = !implementation.is_library() || !jit::library_identity(implementation.library).empty();
  return is_here ? std::string() : fmt::format("the library {} is not here", implementation.library);
}

/// Where there is no device, libraries were not asked whether they are here: as if they had been, the runner-ups of what they won serve.
void pass_over_missing_library(Lookup& whole) {
  std::vector<tune::Refinement> parts;
  for (tune::Refinement& each : whole.refinements) {
    if (std::string why = why_missing(*each.usable.implementation); !why.empty()) {
      if (!each.runner_up) continue;  // its sizes are those of the part above
      each.stale = each.runner_up->stale;
      tune::pass_over(each, std::move(why));
    }
    parts.push_back(std::move(each));
  }
  const std::string why = whole.runner_up ? why_missing(*whole.implementation) : std::string();
  if (!why.empty()) {
    Lookup other = without_library(whole, why);
    if (!whole.is_hit()) other.why = whole.why + "; " + other.why;
    other.key = whole.key;
    if (whole.record) other.passed_over = std::move(whole.record->value);
    whole = std::move(other);
  }
  whole.refinements = std::move(parts);
}

std::string why_of(const Lookup& lookup) {
  std::string why = lookup.record_unusable.empty() || lookup.is_hit()
                        ? lookup.why
                        : fmt::format("the record cannot serve ({}); {}", lookup.record_unusable, lookup.why);
  if (lookup.runner_up)
    why += fmt::format("; a length on the device, and what the library refuses, goes to {}, {:.2f} us{}",
                       name_of(*lookup.runner_up->usable.implementation, lookup.runner_up->usable.config),
                       lookup.runner_up->record.cost_ns / 1000,
                       lookup.runner_up->stale ? ", tuned from other sources" : "");
  return why;
}

/// The model's word, where it tells this implementation's configs apart: the answer's estimate over its best one's.
double modelled_slowdown(const spec::Op& op, const Lookup& lookup, const spec::DeviceFacts& device, Regime regime) {
  if (!tune::has_model(*lookup.implementation)) return 0;
  const tune::Usable best = tune::guess_for(op, lookup.bucket, device, regime);
  if (best.implementation == nullptr) return 1;
  const auto ns = [&](const spec::Implementation& implementation, const spec::Config& config) {
    return tune::estimate(op, implementation, lookup.bucket, device, config, regime).ns;
  };
  const double ratio = ns(*lookup.implementation, lookup.config) / ns(*best.implementation, best.config);
  return std::isfinite(ratio) ? std::max(ratio, 1.0) : 0;
}

double expected_slowdown(const spec::Op& op, const Lookup& lookup, const spec::DeviceFacts& device, Regime regime,
                         store::Layers& layers) {
  if (lookup.implementation == nullptr) return 0;
  if (!is_stand_in(lookup.origin)) return 1;
  const auto known = tune::known_near(layers, op, lookup.bucket, device, regime);
  switch (lookup.origin) {
    case Origin::nearest:
      return tune::transfer_slowdown(op, known, lookup.distance)
          .value_or(modelled_slowdown(op, lookup, device, regime));
    case Origin::model: return tune::guess_slowdown(op, known, regime).value_or(0);  // of itself it knows no better
    default: break;
  }
  return tune::default_slowdown(op, known, {lookup.implementation, lookup.config, {}})
      .value_or(modelled_slowdown(op, lookup, device, regime));
}

/// A part that was not tried holds the time of its whole bucket.
std::string timed_at(const Lookup& lookup) {
  if (!lookup.record || lookup.cost_ns <= 0) return {};
  if (lookup.origin == Origin::nearest) return "of the nearest bucket";
  const store::Record& record = lookup.record->value;
  const auto part = spec::parse_refined_key(spec::parse_runner_up_key(record.key).value_or(record.key));
  return part && record.samples > 0 ? fmt::format("at {}={}", part->axis, part->edge) : "at the bucket's upper edge";
}

}  // namespace

Explanation explain(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime,
                    const std::string& arch, store::Layers& layers, tune::Cubins& cubins) {
  Lookup lookup = look_up(op, problem, device, regime, layers);
  pass_over_missing_library(lookup);
  make_servable(lookup, op, device, arch, cubins);
  Explanation explanation;
  explanation.problem = spec::to_string(op, problem);
  explanation.bucket = spec::to_string(op, lookup.bucket);
  for (const store::Layer& layer : layers.layers()) explanation.layers.push_back(answer_of(layer, lookup));
  lookup = part_at(op, std::move(lookup), problem);
  explanation.key = lookup.key;
  fall_back_at(lookup, op, problem, device);
  explanation.origin = lookup.origin;
  explanation.why = why_of(lookup);
  explanation.miss = lookup.miss ? to_string(*lookup.miss) : std::string_view();
  explanation.stale = lookup.stale;
  explanation.cost_ns = lookup.cost_ns;
  explanation.timed_at = timed_at(lookup);
  explanation.expected_slowdown = expected_slowdown(op, lookup, device, regime, layers);
  if (lookup.implementation == nullptr) return explanation;
  explanation.implementation = lookup.implementation->name;
  explanation.config = spec::to_string(*lookup.implementation, lookup.config);
  explanation.passes = passes_of(op, lookup, problem, device);
  if (const std::string& library = lookup.implementation->library; !library.empty()) {
    const std::string identity = jit::library_identity(library);
    explanation.library = identity.empty() ? library + ", which is not here" : identity;
  }
  const auto frame = spec::make_frame(op, lookup.implementation, lookup.bucket, device, lookup.config);
  const auto specialisation = jit::specialise(op, *lookup.implementation, frame, arch);
  explanation.cubin_found = (lookup.record && cubins.accepts(lookup.record->value.provenance.compiler) &&
                             cubins.find_under(lookup.record->value.provenance.compiler, specialisation)) ||
                            cubins.find(specialisation);
  return explanation;
}

}  // namespace kiln::engine

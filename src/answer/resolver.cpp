#include "answer/resolver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "answer/near_answers.hpp"
#include "jit/executable.hpp"

namespace kiln {

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::hot: return "hot";
    case Origin::overlay: return "overlay";
    case Origin::base: return "base";
    case Origin::nearest: return "nearest";
    case Origin::model: return "model";
    case Origin::default_: return "default";
  }
  return "unknown";
}

}  // namespace kiln

namespace kiln::answer {
namespace {

std::string library_missing(const manifest::Implementation& implementation) {
  const bool is_here = !implementation.is_library() || !jit::library_identity(implementation.library).empty();
  return is_here ? std::string() : fmt::format("the library {} is not here", implementation.library);
}

/// The record's choices that can serve. servings_of asks libraries only where a context is current.
Servings servings_here(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device,
                       const store::Record& record) {
  Servings servings = servings_of(op, bucket, device, record);
  std::erase_if(servings.fastest, [&](const Serving& each) {
    std::string missing = library_missing(*each.usable.implementation);
    if (missing.empty()) return false;
    ++servings.unusable;
    if (servings.why_not.empty()) servings.why_not = std::move(missing);
    return true;
  });
  return servings;
}

struct HitContext {
  const manifest::Op& op;
  const manifest::DeviceFacts& device;
  const store::Record& record;
  const Problem& bucket;
  Origin origin;
  std::string_view unusable;  // why a choice of the record cannot serve; empty where all can
};

/// The reason why the fastest choice for these sizes was left out; empty where it was not.
std::string why_passed_over(const HitContext& hit, const Serving& serving) {
  if (hit.unusable.empty()) return {};
  for (const store::Choice& each : hit.record.choices) {
    const auto region = manifest::parse_region(hit.op, hit.bucket, each.sizes);
    if (each.role != store::Role::fastest || !region || !region->contains(hit.op, serving.region.high)) continue;
    const manifest::Implementation* implementation = hit.op.find(each.implementation);
    if (implementation == nullptr || implementation->is_library())
      return fmt::format("{}, the fastest with {:.2f} us, cannot serve ({}); ", each.implementation,
                         each.cost_ns / 1000, hit.unusable);
  }
  return {};
}

std::string why_choice_serves(const HitContext& hit, const Serving& serving, bool stale) {
  const bool is_only = std::ranges::count(hit.record.choices, serving.choice.role, &store::Choice::role) == 1;
  const std::string sizes = is_only ? "" : fmt::format(" for {}", serving.choice.sizes);
  std::string why;
  if (serving.choice.role == store::Role::fastest)
    why = is_only ? "the record's config is legal in this bucket" : fmt::format("the record's config{}", sizes);
  else
    why =
        fmt::format("{}this is the fastest of the same tune without a library{}", why_passed_over(hit, serving), sizes);
  if (stale) why += "; it was tuned from other sources, and serves until it is tuned again";
  return why;
}

std::string timed_at(const manifest::Op& op, const Problem& bucket, const Problem& at) {
  return at == bucket ? "at the bucket's upper edge" : "at " + manifest::open_sizes(op, at);
}

Answer answer_of(const HitContext& hit, const Serving& serving) {
  Answer answer = answer_from(serving, hit.origin);
  answer.timed_at = timed_at(hit.op, hit.bucket, serving.at());
  answer.stale = is_stale(hit.op, *answer.implementation, answer.config, answer.at, hit.device, serving.choice);
  answer.why = why_choice_serves(hit, serving, answer.stale);
  return answer;
}

bool same_config(const Answer& left, const Answer& right) {
  return left.implementation == right.implementation && left.config == right.config;
}

Problem largest(const Problem& left, const Problem& right) {
  Problem result = left;
  for (std::size_t i = 0; i < result.axes.size(); ++i) result.axes[i] = std::max(left.axes[i], right.axes[i]);
  return result;
}

/// Gives answers of one config one plan, made for the largest sizes of them all. A library's plan is made only for sizes that it was asked
/// about.
void share_plans(std::vector<Answer>& answers, const manifest::Op& op, const manifest::DeviceFacts& device) {
  for (Answer& each : answers) {
    Problem at = each.at;
    bool was_asked = false;
    for (const Answer& other : answers)
      if (same_config(each, other)) at = largest(at, other.region.high);
    for (const Answer& other : answers) was_asked = was_asked || (same_config(each, other) && other.region.high == at);
    const bool is_legal =
        was_asked || (!each.implementation->is_library() &&
                      !manifest::broken_constraint(op, *each.implementation, at, device, each.config));
    if (is_legal) each.at = at;
  }
}

/// The record's own kernels for the whole bucket, those of larger sizes first. They serve sizes whose own choice is not legal or cannot be
/// made.
std::vector<Answer> beyond(const std::vector<Answer>& answers, const manifest::Op& op, const Problem& bucket,
                           const manifest::DeviceFacts& device) {
  std::vector<Answer> result;
  const manifest::Region whole = manifest::whole_of(op, bucket);
  for (std::size_t i = answers.size(); i-- > 0;) {
    const Answer& each = answers[i];
    if (each.implementation->is_library() || each.region == whole) continue;
    if (std::ranges::any_of(result, [&](const Answer& other) { return same_config(each, other); })) continue;
    if (manifest::broken_constraint(op, *each.implementation, bucket, device, each.config)) continue;
    Answer& answer = result.emplace_back(each);
    answer.region = whole;
    answer.at = bucket;
    answer.is_beyond = true;
    answer.why =
        fmt::format("the record's config for {} serves beyond its sizes", manifest::to_string(op, each.region));
  }
  return result;
}

/// Whether the default can be legal at some size of the bucket.
bool can_be_legal(const manifest::Op& op, const manifest::Implementation& implementation, const Problem& bucket,
                  const manifest::DeviceFacts& device) {
  if (implementation.is_library() || manifest::why_not_eligible(op, implementation, bucket, device)) return false;
  const auto frame = manifest::make_frame(op, &implementation, bucket, device, implementation.default_config);
  return !jit::broken_fixed_constraint(op, implementation, frame);
}

void add_defaults(Resolution& resolution, const manifest::Op& op, const manifest::DeviceFacts& device) {
  const manifest::Region whole = manifest::whole_of(op, resolution.bucket);
  const bool is_first = resolution.answers.empty();
  for (const manifest::Implementation& each : op.implementations) {
    if (!can_be_legal(op, each, resolution.bucket, device)) continue;
    resolution.answers.push_back(answer_without_record(
        Origin::default_, each, each.default_config, whole,
        is_first ? "no record is near, and the model promises nothing better; the op's first legal default"
                 : "the op's first legal default serves"));
  }
}

/// Takes the first layer's record with a choice that can serve. A record without one does not hide those of later layers.
void use_record(Resolution& resolution, const manifest::Op& op, const manifest::DeviceFacts& device,
                store::Layers& layers) {
  store::Counters met;
  Servings servings;
  std::string passed_over;
  const auto can_serve = [&](const store::Found<store::Record>& found) {
    servings = servings_here(op, resolution.bucket, device, found.value);
    if (!servings.any() && passed_over.empty()) passed_over = servings.why_not;
    return servings.any();
  };
  resolution.record = layers.find_record(resolution.key, can_serve, &met);
  if (!resolution.record) {
    resolution.unusable = std::move(passed_over);
    resolution.miss = resolution.unusable.empty() ? reason_of(met, Miss::absent) : Miss::unusable;
    return;
  }
  resolution.unusable = std::move(servings.why_not);
  resolution.unusable_choices = servings.unusable;
  const bool overlay = layers.layers()[resolution.record->layer].kind == store::LayerKind::overlay;
  const HitContext hit{op,
                       device,
                       resolution.record->value,
                       resolution.bucket,
                       overlay ? Origin::overlay : Origin::base,
                       resolution.unusable};
  std::vector<Answer>& answers = resolution.answers;
  for (const auto* role : {&servings.fastest, &servings.without_library})
    for (const Serving& each : *role) answers.push_back(answer_of(hit, each));
  share_plans(answers, op, device);
  std::ranges::move(beyond(answers, op, resolution.bucket, device), std::back_inserter(answers));
}

/// The ranks of a team need one config, whatever their policies are. Where their sizes may differ, that for the largest sizes serves the bucket.
void leave_what_ranks_share(Resolution& resolution, const manifest::Op& op, const manifest::DeviceFacts& device) {
  std::vector<Answer>& answers = resolution.answers;
  std::erase_if(answers, &Answer::is_beyond);
  if (manifest::sizes_may_differ_between_ranks(op, resolution.bucket)) {
    // One of each role is kept, since a library may be missing on all ranks.
    const auto serves_more = [](const Answer& a, const Answer& b) { return a.region.high.axes < b.region.high.axes; };
    std::vector<Answer> kept;
    for (const store::Role role : {store::Role::fastest, store::Role::without_library}) {
      const Answer* largest = nullptr;
      for (const Answer& each : answers)
        if (each.role == role && (largest == nullptr || serves_more(*largest, each))) largest = &each;
      if (largest != nullptr) kept.push_back(*largest);
    }
    for (Answer& each : kept) {
      each.region = manifest::whole_of(op, resolution.bucket);
      each.at = each.region.high;
    }
    std::erase_if(kept, [&](const Answer& each) {
      return manifest::broken_constraint(op, *each.implementation, each.at, device, each.config).has_value();
    });
    answers = std::move(kept);
  }
  if (!answers.empty()) return;
  resolution.why_none =
      why_network_serves_not(op, resolution.bucket, device)
          .value_or(
              "an op of a team is served by a record alone, which its ranks tune together: by kiln tune, Tuner, their first launch or Engine::prepare");
}

/// A specialisation for no architecture, which no digest of sources covers.
jit::Specialisation sources_of(const manifest::Op& op, const manifest::Implementation& implementation,
                               const Problem& at, const manifest::DeviceFacts& device,
                               std::span<const std::int64_t> config) {
  return jit::specialise(op, implementation, manifest::make_frame(op, &implementation, at, device, config), {});
}

}  // namespace

std::optional<std::string> why_network_serves_not(const manifest::Op& op, const Problem& problem,
                                                  const manifest::DeviceFacts& device) {
  if (device.link != manifest::TeamLink::network) return std::nullopt;
  const manifest::Implementation* by_nccl = nullptr;
  std::string why;
  for (const manifest::Implementation& each : op.implementations) {
    const auto refused = manifest::why_not_eligible(op, each, problem, device);
    if (!refused) return std::nullopt;
    if (!each.is_collective() || by_nccl != nullptr) continue;
    by_nccl = &each;
    why = *refused;
  }
  if (by_nccl == nullptr)
    return fmt::format(
        "ranks that met at an address speak through NCCL alone, and {} has no implementation by it; "
        "launch it in a team of one host, which has no address",
        op.name);
  const bool asks_promise =
      manifest::sizes_may_differ_between_ranks(op, problem) &&
      std::ranges::find(op.selections, "ranks", &manifest::Selection::name) != op.selections.end();
  return fmt::format("ranks that met at an address speak through NCCL alone, and '{}' of {} does not serve: {}{}",
                     by_nccl->name, op.name, why,
                     asks_promise ? ". A problem with ranks = \"alike\" promises that all ranks launch alike" : "");
}

Answer answer_from(const Serving& serving, Origin origin) {
  Answer answer;
  answer.origin = origin;
  answer.role = serving.choice.role;
  answer.region = serving.region;
  answer.at = serving.at();
  answer.implementation = serving.usable.implementation;
  answer.config = serving.usable.config;
  answer.cost_ns = serving.choice.cost_ns;
  answer.compiler = serving.choice.compiler;
  return answer;
}

Answer answer_without_record(Origin origin, const manifest::Implementation& implementation, manifest::Config config,
                             const manifest::Region& region, std::string why) {
  Answer answer;
  answer.origin = origin;
  answer.region = region;
  answer.at = region.high;
  answer.implementation = &implementation;
  answer.config = std::move(config);
  answer.why = std::move(why);
  return answer;
}

std::string name_of(const Answer& answer) {
  return fmt::format("{} {}", answer.implementation->name, manifest::to_string(*answer.implementation, answer.config));
}

bool Resolution::is_stale() const noexcept { return std::ranges::any_of(answers, &Answer::stale); }

Resolution resolve(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, Regime regime,
                   store::Layers& layers, bool fallbacks) {
  Resolution resolution;
  resolution.bucket = manifest::bucket_of(op, problem);
  resolution.key = manifest::record_key(op, resolution.bucket, device, regime);
  use_record(resolution, op, device, layers);
  if (op.team_axis() >= 0) {
    leave_what_ranks_share(resolution, op, device);
    return resolution;
  }
  if (!resolution.is_hit() && !fallbacks) return resolution;
  if (!resolution.is_hit()) {
    resolution.answers = near_answers(op, resolution.bucket, device, regime, layers);
    share_plans(resolution.answers, op, device);
  }
  add_defaults(resolution, op, device);
  if (resolution.answers.empty()) resolution.why_none = default_for(op, resolution.bucket, device).why_not;
  return resolution;
}

std::optional<std::string> why_not(const manifest::Op& op, const Answer& answer, const Problem& problem,
                                   const manifest::DeviceFacts& device) {
  if (!answer.region.contains(op, problem)) return fmt::format("it serves {}", manifest::to_string(op, answer.region));
  if (const auto broken = manifest::broken_constraint(op, *answer.implementation, problem, device, answer.config))
    return fmt::format("breaks the constraint '{}' at this size", *broken);
  if (!answer.implementation->is_library()) return std::nullopt;
  const auto frame = manifest::make_frame(op, answer.implementation, problem, device, answer.config);
  if (auto refused = jit::why_library_refuses(op, *answer.implementation, frame))
    return fmt::format("is not taken at this size: {}", *refused);
  return std::nullopt;
}

const Answer* serving(const manifest::Op& op, const Resolution& resolution, const Problem& problem,
                      const manifest::DeviceFacts& device) {
  for (const Answer& each : resolution.answers)
    if (!why_not(op, each, problem, device)) return &each;
  return nullptr;
}

const Answer* serving_without_library(const manifest::Op& op, const Resolution& resolution, const Problem& problem,
                                      const manifest::DeviceFacts& device) {
  for (const Answer& each : resolution.answers)
    if (!each.implementation->is_library() && !why_not(op, each, problem, device)) return &each;
  return nullptr;
}

std::vector<const Answer*> picked_by_size(const manifest::Op& op, const Resolution& resolution) {
  std::vector<const Answer*> picked;
  for (const Answer& each : resolution.answers) {
    const auto is_taken = [&](const Problem& problem) {
      return std::ranges::any_of(picked, [&](const Answer* before) { return before->region.contains(op, problem); });
    };
    if (!is_taken(each.region.low) || !is_taken(each.region.high)) picked.push_back(&each);
  }
  return picked;
}

bool has_code(const manifest::Op& op, const Answer& answer, const manifest::DeviceFacts& device,
              const std::string& arch, Cubins& cubins) {
  if (!answer.implementation->has_kernels()) return true;
  const auto frame = manifest::make_frame(op, answer.implementation, answer.at, device, answer.config);
  const auto specialisation = jit::specialise(op, *answer.implementation, frame, arch);
  return cubins.find_serving(specialisation, answer.compiler).has_value();
}

void leave_servable(Resolution& resolution, const manifest::Op& op, const manifest::DeviceFacts& device,
                    const std::string& arch, Cubins& cubins) {
  const auto needs_code = [](const Answer& each) {
    return each.origin == Origin::nearest || each.origin == Origin::model;
  };
  if (std::ranges::none_of(resolution.answers, needs_code) || cubins.can_compile()) return;
  std::string left_out;
  std::erase_if(resolution.answers, [&](const Answer& each) {
    if (!needs_code(each) || has_code(op, each, device, arch, cubins)) return false;
    if (left_out.empty()) left_out = each.why;
    return true;
  });
  if (left_out.empty() || resolution.answers.empty() || resolution.answers.front().origin != Origin::default_) return;
  resolution.answers.front().why = fmt::format(
      "no file has machine code of what would stand in ({}), and there is no NVRTC; the op's first legal default",
      left_out);
}

std::vector<jit::Specialisation> specialisations_of(const manifest::Op& op, const Resolution& resolution,
                                                    const manifest::DeviceFacts& device, const std::string& arch) {
  std::vector<jit::Specialisation> result;
  std::set<std::pair<const manifest::Implementation*, manifest::Config>> seen;
  for (const Answer& each : resolution.answers) {
    if (!each.implementation->has_kernels() || !seen.emplace(each.implementation, each.config).second) continue;
    const auto frame = manifest::make_frame(op, each.implementation, each.at, device, each.config);
    result.push_back(jit::specialise(op, *each.implementation, frame, arch));
  }
  return result;
}

std::string present_source(const manifest::Op& op, const manifest::Implementation& implementation, const Problem& at,
                           const manifest::DeviceFacts& device, std::span<const std::int64_t> config) {
  return manifest::to_hex(jit::source_digest(sources_of(op, implementation, at, device, config)));
}

bool is_stale(const manifest::Op& op, const manifest::Implementation& implementation, const manifest::Config& config,
              const Problem& at, const manifest::DeviceFacts& device, const store::Choice& choice) {
  if (!jit::is_present_source(sources_of(op, implementation, at, device, config), choice.source_digest)) return true;
  if (implementation.has_kernels()) return false;
  const std::string identity = jit::library_identity(implementation.library);
  return !identity.empty() && identity != choice.compiler;
}

}  // namespace kiln::answer

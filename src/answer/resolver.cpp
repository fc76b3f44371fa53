#include "answer/resolver.hpp"

#include <fmt/format.h>

#include <algorithm>
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
Servings servings_here(const manifest::Bucket& bucket, const store::Record& record) {
  Servings servings = servings_of(bucket, record);
  std::erase_if(servings.fastest, [&](const Serving& each) {
    std::string missing = library_missing(*each.implementation);
    if (missing.empty()) return false;
    ++servings.unusable;
    if (servings.why_not.empty()) servings.why_not = std::move(missing);
    return true;
  });
  return servings;
}

struct HitContext {
  const manifest::Bucket& bucket;
  const store::Record& record;
  Origin origin;
  std::string_view unusable;  // why a choice of the record cannot serve; empty where all can
};

/// The reason why the fastest choice for these sizes was left out; empty where it was not.
std::string why_passed_over(const HitContext& hit, const Serving& serving) {
  if (hit.unusable.empty()) return {};
  const manifest::Op& op = *hit.bucket.op;
  for (const store::Choice& each : hit.record.choices) {
    const auto region = manifest::parse_region(op, hit.bucket.edge, each.sizes);
    if (each.role != store::Role::fastest || !region || !region->contains(op, serving.region.high)) continue;
    const manifest::Implementation* implementation = op.find(each.implementation);
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

std::string timed_at(const manifest::Bucket& bucket, const Problem& at) {
  return at == bucket.edge ? "at the bucket's upper edge" : "at " + manifest::open_sizes(*bucket.op, at);
}

Answer answer_of(const HitContext& hit, const Serving& serving) {
  Answer answer = answer_from(serving, hit.origin);
  answer.timed_at = timed_at(hit.bucket, serving.at());
  answer.stale = is_stale(hit.bucket, answer, answer.at, serving.choice);
  answer.why = why_choice_serves(hit, serving, answer.stale);
  return answer;
}

bool same_config(const manifest::Variant& left, const manifest::Variant& right) { return left == right; }

Problem largest(const Problem& left, const Problem& right) {
  Problem result = left;
  for (std::size_t i = 0; i < result.axes.size(); ++i) result.axes[i] = std::max(left.axes[i], right.axes[i]);
  return result;
}

/// Gives answers of one config one plan, made for the largest sizes of them all. A library's plan is made only for
/// sizes that it was asked about.
void share_plans(std::vector<Answer>& answers, const manifest::Bucket& bucket) {
  for (Answer& each : answers) {
    Problem at = each.at;
    bool was_asked = false;
    for (const Answer& other : answers)
      if (same_config(each, other)) at = largest(at, other.region.high);
    for (const Answer& other : answers) was_asked = was_asked || (same_config(each, other) && other.region.high == at);
    const bool is_legal = was_asked || (!each.implementation->is_library() && !each.broken_constraint(bucket, at));
    if (is_legal) each.at = at;
  }
}

/// The record's own kernels for the whole bucket, those of larger sizes first. They serve sizes whose own choice is not
/// legal or cannot be made.
std::vector<Answer> beyond(const std::vector<Answer>& answers, const manifest::Bucket& bucket) {
  std::vector<Answer> result;
  const manifest::Region whole = manifest::whole_of(*bucket.op, bucket.edge);
  for (std::size_t i = answers.size(); i-- > 0;) {
    const Answer& each = answers[i];
    if (each.implementation->is_library() || each.region == whole) continue;
    if (std::ranges::any_of(result, [&](const Answer& other) { return same_config(each, other); })) continue;
    if (each.broken_constraint(bucket, bucket.edge)) continue;
    Answer& answer = result.emplace_back(each);
    answer.region = whole;
    answer.at = bucket.edge;
    answer.is_beyond = true;
    answer.why =
        fmt::format("the record's config for {} serves beyond its sizes", manifest::to_string(*bucket.op, each.region));
  }
  return result;
}

void add_defaults(Resolution& resolution) {
  const manifest::Region whole = manifest::whole_of(*resolution.bucket.op, resolution.bucket.edge);
  const bool is_first = resolution.answers.empty();
  for (manifest::Variant& each : defaults_of(resolution.bucket))
    resolution.answers.push_back(answer_without_record(Origin::default_, std::move(each), whole,
                                                       is_first
                                                           ? "no record is near, so the op's first legal default serves"
                                                           : "the op's first legal default serves"));
}

void add_choices(Resolution& resolution, const store::Record& record, Origin origin, Servings servings) {
  resolution.unusable = std::move(servings.why_not);
  resolution.unusable_choices = servings.unusable;
  const HitContext hit{resolution.bucket, record, origin, resolution.unusable};
  std::vector<Answer>& answers = resolution.answers;
  for (const auto* role : {&servings.fastest, &servings.without_library})
    for (const Serving& each : *role) answers.push_back(answer_of(hit, each));
  share_plans(answers, resolution.bucket);
  std::ranges::move(beyond(answers, resolution.bucket), std::back_inserter(answers));
}

/// Takes the first layer's record with a choice that can serve. A record without one does not hide those of later
/// layers.
void use_record(Resolution& resolution, store::Layers& layers) {
  store::Counters met;
  Servings servings;
  std::string passed_over;
  const auto can_serve = [&](const store::Found<store::Record>& found) {
    servings = servings_here(resolution.bucket, found.value);
    if (!servings.any() && passed_over.empty()) passed_over = servings.why_not;
    return servings.any();
  };
  resolution.record = layers.find_record(resolution.key, can_serve, &met);
  if (!resolution.record) {
    resolution.unusable = std::move(passed_over);
    resolution.miss = resolution.unusable.empty() ? reason_of(met, Miss::absent) : Miss::unusable;
    return;
  }
  const bool overlay = layers.layers()[resolution.record->layer].kind == store::LayerKind::overlay;
  add_choices(resolution, resolution.record->value, overlay ? Origin::overlay : Origin::base, std::move(servings));
}

/// The ranks of a team need one config, whatever their policies are. Where their sizes may differ, that for the largest
/// sizes serves the bucket.
void leave_what_ranks_share(Resolution& resolution) {
  const manifest::Bucket& bucket = resolution.bucket;
  std::vector<Answer>& answers = resolution.answers;
  std::erase_if(answers, &Answer::is_beyond);
  if (manifest::sizes_may_differ_between_ranks(*bucket.op, bucket.edge)) {
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
      each.region = manifest::whole_of(*bucket.op, bucket.edge);
      each.at = each.region.high;
    }
    std::erase_if(kept, [&](const Answer& each) { return each.broken_constraint(bucket, each.at).has_value(); });
    answers = std::move(kept);
  }
  if (!answers.empty()) return;
  resolution.why_none =
      why_network_serves_not(bucket, bucket.edge)
          .value_or(
              "no record serves its ranks, which tune one together: by kiln tune, Tuner, their first launch or Engine::prepare");
}

/// What may stand in for a missing record of a team's op. A rank whose launch is refused cannot go on to another config
/// alone, so each is legal at both ends of the bucket, and serves all of it. The ranks agree on NCCL only for a record,
/// or where there is nothing else.
void add_stand_ins(Resolution& resolution, store::Layers& layers) {
  const manifest::Bucket& bucket = resolution.bucket;
  const manifest::Region whole = manifest::whole_of(*bucket.op, bucket.edge);
  std::vector<Answer> found = near_answers(bucket, layers);
  // One that was chosen for large sizes comes first.
  std::ranges::stable_sort(found,
                           [](const Answer& a, const Answer& b) { return a.region.high.axes > b.region.high.axes; });
  resolution.answers = std::move(found);
  add_defaults(resolution);
  found = std::exchange(resolution.answers, {});
  if (bucket.device->link == manifest::TeamLink::network)  // no default is a library's
    for (const manifest::Implementation& each : bucket.op->implementations)
      if (each.is_collective() && !manifest::why_not_eligible(bucket, each, bucket.edge))
        found.push_back(answer_without_record(Origin::default_, manifest::default_of(each), whole,
                                              "no record is near; over a network NCCL alone serves"));
  for (Answer& each : found) {
    const bool is_known =
        std::ranges::any_of(resolution.answers, [&](const Answer& other) { return same_config(each, other); });
    if (is_known || (each.implementation->is_collective() && bucket.device->link != manifest::TeamLink::network) ||
        each.broken_constraint(bucket, whole.low) || each.broken_constraint(bucket, whole.high))
      continue;
    each.region = whole;
    each.at = whole.high;
    resolution.answers.push_back(std::move(each));
  }
  if (!resolution.answers.empty()) resolution.why_none.clear();
}

/// A specialisation for no architecture, which no digest of sources covers.
jit::Specialisation sources_of(const manifest::Site& site, const manifest::Variant& variant, const Problem& at) {
  return jit::specialise(site, variant, at, {});
}

}  // namespace

std::optional<std::string> why_network_serves_not(const manifest::Site& site, const Problem& problem) {
  const manifest::Op& op = *site.op;
  if (site.device->link != manifest::TeamLink::network) return std::nullopt;
  const manifest::Implementation* by_nccl = nullptr;
  std::string why;
  for (const manifest::Implementation& each : op.implementations) {
    const auto refused = manifest::why_not_eligible(site, each, problem);
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
  static_cast<manifest::Variant&>(answer) = serving;
  answer.origin = origin;
  answer.role = serving.choice.role;
  answer.region = serving.region;
  answer.at = serving.at();
  answer.cost_ns = serving.choice.cost_ns;
  answer.compiler = serving.choice.compiler;
  return answer;
}

Answer answer_without_record(Origin origin, manifest::Variant variant, const manifest::Region& region,
                             std::string why) {
  Answer answer;
  static_cast<manifest::Variant&>(answer) = std::move(variant);
  answer.origin = origin;
  answer.region = region;
  answer.at = region.high;
  answer.why = std::move(why);
  return answer;
}

bool Resolution::is_stale() const noexcept { return std::ranges::any_of(answers, &Answer::stale); }

Resolution resolve(const manifest::Site& site, const Problem& problem, store::Layers& layers, bool fallbacks) {
  Resolution resolution;
  resolution.bucket = site.bucket_of(problem);
  const manifest::Bucket& bucket = resolution.bucket;
  resolution.key = bucket.key();
  use_record(resolution, layers);
  if (bucket.op->is_of_team()) {
    leave_what_ranks_share(resolution);
    if (!resolution.is_hit() && fallbacks) add_stand_ins(resolution, layers);
    return resolution;
  }
  if (!resolution.is_hit() && !fallbacks) return resolution;
  if (!resolution.is_hit()) {
    resolution.answers = near_answers(bucket, layers);
    share_plans(resolution.answers, bucket);
  }
  add_defaults(resolution);
  if (resolution.answers.empty()) resolution.why_none = default_for(bucket, bucket.edge).why_not;
  return resolution;
}

Resolution resolve_with(const manifest::Bucket& bucket, const store::Record& record) {
  Resolution resolution;
  resolution.bucket = bucket;
  resolution.key = bucket.key();
  add_choices(resolution, record, Origin::overlay, servings_here(bucket, record));
  bucket.op->is_of_team() ? leave_what_ranks_share(resolution) : add_defaults(resolution);
  return resolution;
}

std::optional<std::string> Answer::why_not(const manifest::Site& site, const Problem& problem) const {
  if (!region.contains(*site.op, problem)) return fmt::format("it serves {}", manifest::to_string(*site.op, region));
  if (const auto broken = broken_constraint(site, problem))
    return fmt::format("breaks the constraint '{}' at this size", *broken);
  if (const auto refused = jit::why_library_refuses(site, *this, problem))
    return fmt::format("is not taken at this size: {}", *refused);
  return std::nullopt;
}

Resolution::First Resolution::first(const Problem& problem, const IsAmong& is_among) const {
  First found{answers.size(), nullptr, {}};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    if (!answer.region.contains(*bucket.op, problem) || (is_among && !is_among(i))) continue;
    if (auto why_not = answer.why_not(bucket, problem)) {
      found.passed_over.push_back({&answer, std::move(*why_not)});
      continue;
    }
    found.index = i;
    found.serves = &answer;
    break;
  }
  return found;
}

Resolution::First Resolution::first_own(const Problem& problem) const {
  return first(problem, [&](std::size_t index) { return !answers[index].implementation->is_library(); });
}

std::vector<const Answer*> Resolution::picked_by_size() const {
  std::vector<const Answer*> picked;
  for (const Answer& each : answers) {
    const auto is_taken = [&](const Problem& problem) {
      return std::ranges::any_of(picked,
                                 [&](const Answer* before) { return before->region.contains(*bucket.op, problem); });
    };
    if (!is_taken(each.region.low) || !is_taken(each.region.high)) picked.push_back(&each);
  }
  return picked;
}

std::string present_source(const manifest::Site& site, const manifest::Variant& variant, const Problem& at) {
  return manifest::to_hex(jit::source_digest(sources_of(site, variant, at)));
}

bool is_stale(const manifest::Site& site, const manifest::Variant& variant, const Problem& at,
              const store::Choice& choice) {
  if (!jit::is_present_source(sources_of(site, variant, at), choice.source_digest)) return true;
  if (variant.implementation->has_kernels()) return false;
  const std::string identity = jit::library_identity(variant.implementation->library);
  return !identity.empty() && identity != choice.compiler;
}

}  // namespace kiln::answer

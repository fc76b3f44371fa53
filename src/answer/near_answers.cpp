#include "answer/near_answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "answer/guess.hpp"
#include "answer/neighbours.hpp"
#include "cuda/device.hpp"

namespace kiln::answer {
namespace {

// Doublings within which a record's configs are added to the model's proposals. H100, gemm (see answer/guess.cpp): 2
// and 4 are about as good.
constexpr double farthest = 3;
// Doublings within which a record of one config serves before the model. H200, records of ten other ops, each served by
// the others: it names the tuned config in 6 of 10, the model in 4.
constexpr double steady_within = 1;
constexpr std::size_t most_winners = 96;  // each takes microseconds to estimate
constexpr std::size_t most_answers = 8;   // each may be compiled by a launch

/// The bucket without a record, and its device.
struct Asked : manifest::Bucket {
  std::string edge_text;
  bool is_current;  // whether a context of `device` is current, so that libraries can be asked
};

bool is_current_device(const manifest::DeviceFacts& device) {
  const cuda::Driver* driver = cuda::Driver::find();
  CUcontext context = nullptr;
  CUdevice ordinal = 0;
  if (driver == nullptr || driver->cuCtxGetDevice == nullptr || driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
      context == nullptr || driver->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
    return false;
  return cuda::device_info(ordinal).facts.device_class() == device.device_class();
}

bool is_same_bucket(const Asked& asked, const NearRecord& near) { return near.found.value.bucket == asked.edge_text; }

/// The record with its choices as this device may launch them. Without a library's algorithm for other buckets: H100,
/// gemm: at other n and k one takes 1.4 to 2.1 times the best time.
store::Record adapted(const Asked& asked, const NearRecord& near) {
  store::Record record = near.found.value;
  record.candidates.clear();
  std::erase_if(record.choices, [&](const store::Choice& choice) {
    const manifest::Implementation* implementation = asked.op->find(choice.implementation);
    return implementation != nullptr && implementation->is_library() &&
           (!is_same_bucket(asked, near) || (!near.same_device && !asked.is_current));
  });
  for (store::Choice& choice : record.choices) {
    const manifest::Implementation* implementation = asked.op->find(choice.implementation);
    if (implementation == nullptr || implementation->is_library()) continue;
    auto config = manifest::parse_config(*implementation, choice.config);
    if (!config || !manifest::Variant{implementation, *config}.broken_constraint(asked, asked.edge)) continue;
    const manifest::Config usual = manifest::kernel_config(*implementation, std::move(*config));
    if (!manifest::Variant{implementation, usual}.broken_constraint(asked, asked.edge))
      choice.config = manifest::to_string(*implementation, usual);
  }
  return record;
}

/// "rows=256 cols=4096 dtype=bf16 of sm_90/mp132/..., 2.0 doublings away"
std::string named(const Asked& asked, const NearRecord& near) {
  const store::Record& record = near.found.value;
  constexpr double least_shown = 0.05;  // of two devices that hardly differ
  return fmt::format(
      "{}{}{}", record.bucket == asked.edge_text ? "the same bucket's" : manifest::display_text(*asked.op, near.bucket),
      near.same_device ? "" : " of " + record.device_class,
      near.distance >= least_shown ? fmt::format(", {:.1f} doublings away", near.distance) : "");
}

std::string why_near(const Asked& asked, const NearRecord& near, const Serving& serving) {
  const store::Record& record = near.found.value;
  const bool is_same = record.bucket == asked.edge_text;
  std::string why =
      "no usable record for this bucket; " + (is_same ? "" : std::string("the nearest is ")) + named(asked, near);
  const auto same_kernel = [&](const store::Choice& each) {
    return each.implementation == serving.choice.implementation && each.config == serving.choice.config;
  };
  if (std::ranges::none_of(record.choices, same_kernel)) why += ", launched as usual: not early on this device";
  return why;
}

Answer answer_of(const Asked& asked, const NearRecord& near, const Serving& serving) {
  Answer answer = answer_from(serving, Origin::nearest);
  answer.timed_at = near.found.value.bucket == asked.edge_text ? "of the nearest device" : "of the nearest bucket";
  answer.distance = near.distance;
  answer.why = why_near(asked, near, serving);
  return answer;
}

/// 0: this device's record, or the same bucket's of a device of its architecture; 1: the same bucket's of another
/// architecture; 2: others.
int tier_of(const Asked& asked, const NearRecord& near) {
  const bool same = is_same_bucket(asked, near);
  if (near.same_device || (same && near.device.sm() == asked.device->sm())) return 0;
  return same ? 1 : 2;
}

/// Whether the record is of the same bucket, on a device of this architecture.
bool is_measured(const Asked& asked, const NearRecord& near) {
  return is_same_bucket(asked, near) && tier_of(asked, near) == 0;
}

/// Whether the record is of this device, at most a doubling away on the open axes, and one config serves all its
/// lengths.
bool is_steady(const Asked& asked, const NearRecord& near) {
  if (!near.same_device || near.distance > steady_within) return false;
  for (std::size_t i = 0; i < asked.op->axes.size(); ++i)
    if (manifest::is_exact(*asked.op, i, asked.edge) && near.bucket.axes[i] != asked.edge.axes[i]) return false;
  std::vector<manifest::Variant> winners;
  add_winners(winners, asked, near.found.value);
  return winners.size() == 1;
}

/// Sorts by tier, then the same bucket before others, then steady ones before others, then by distance.
std::vector<NearRecord> in_tiers(const Asked& asked, std::vector<NearRecord> near) {
  std::vector<std::tuple<int, bool, bool, double, std::size_t>> places;
  for (std::size_t i = 0; i < near.size(); ++i)
    places.emplace_back(tier_of(asked, near[i]), !is_same_bucket(asked, near[i]), !is_steady(asked, near[i]),
                        near[i].distance, i);
  std::ranges::sort(places);
  std::vector<NearRecord> ordered;
  for (const auto& each : places) ordered.push_back(std::move(near[std::get<std::size_t>(each)]));
  return ordered;
}

/// Whether some answer is legal at both ends of the bucket, and so nearly everywhere in it.
bool serves_all(const Asked& asked, const std::vector<Answer>& answers) {
  const manifest::Region whole = manifest::whole_of(*asked.op, asked.edge);
  return std::ranges::any_of(answers, [&](const Answer& answer) {
    return answer.region.high == whole.high && !answer.broken_constraint(asked, answer.region.low);
  });
}

struct NearAnswers {
  std::vector<Answer> answers;  // in the order in which they are tried
  const NearRecord* first = nullptr;
};

/// Answers from records, with their own intervals where these are of this bucket's sizes, else for all sizes.
NearAnswers answers_of(const Asked& asked, const std::vector<NearRecord>& near) {
  NearAnswers found;
  const auto add = [&](Answer answer) {
    const bool is_known = std::ranges::any_of(found.answers, [&](const Answer& each) {
      return each.implementation == answer.implementation && each.config == answer.config &&
             each.region == answer.region;
    });
    if (!is_known) found.answers.push_back(std::move(answer));
  };
  const NearRecord* same_bucket = nullptr;  // the nearest one: farther devices' records of it are skipped
  for (const NearRecord& each : near) {
    const bool is_same = is_same_bucket(asked, each);
    if (is_same && same_bucket != nullptr && each.device.device_class() != same_bucket->device.device_class()) continue;
    const Servings servings = servings_of(asked, adapted(asked, each));
    if (!servings.any()) continue;
    if (is_same && same_bucket == nullptr) same_bucket = &each;
    if (found.first == nullptr) found.first = &each;
    for (const auto* role : {&servings.fastest, &servings.without_library})
      for (const Serving& serving : *role) add(answer_of(asked, each, serving));
    if (serves_all(asked, found.answers) || found.answers.size() >= most_answers) break;
  }
  return found;
}

/// The configs of near records that are legal here, nearest first.
std::vector<manifest::Variant> winners_of(const Asked& asked, const std::vector<NearRecord>& near) {
  std::vector<manifest::Variant> winners;
  for (const NearRecord& each : near)
    if (each.distance <= farthest && winners.size() < most_winners) add_winners(winners, asked, each.found.value);
  return winners;
}

/// The model's choices. Where one breaks a constraint at its lowest sizes, also the best config that is legal in the
/// whole bucket.
std::vector<Answer> guesses(const Asked& asked, const std::vector<NearRecord>& near) {
  const std::string why = near.empty() ? "no record is near" : "the nearest record is " + named(asked, near.front());
  std::vector<Answer> answers;
  bool is_partial = false;
  for (const Guess& guess : guesses_for(asked, winners_of(asked, near))) {
    const std::string_view known = guess.has_won ? ", which serves a near bucket," : "";
    answers.push_back(answer_without_record(
        Origin::model, guess.of, guess.region,
        fmt::format("{}; of what is legal the model expects this{} to be the fastest", why, known)));
    is_partial = is_partial || guess.of.broken_constraint(asked, guess.region.low);
  }
  if (!is_partial) return answers;
  const manifest::Region whole = manifest::whole_of(*asked.op, asked.edge);
  if (const Expected everywhere = fastest_expected(asked, asked.edge, whole.low))
    answers.push_back(
        answer_without_record(Origin::model, everywhere, whole,
                              why + "; of what is legal in the whole bucket the model expects this to be the fastest"));
  return answers;
}

}  // namespace

std::vector<Answer> near_answers(const manifest::Bucket& bucket, store::Layers& layers) {
  const Asked asked{bucket, manifest::to_string(*bucket.op, bucket.edge), is_current_device(*bucket.device)};
  const auto near = in_tiers(asked, near_records(layers, bucket));
  NearAnswers nearest = answers_of(asked, near);
  if (nearest.first != nullptr && (is_measured(asked, *nearest.first) || is_steady(asked, *nearest.first) ||
                                   !has_model(*nearest.answers.front().implementation)))
    return std::move(nearest.answers);
  std::vector<Answer> expected = guesses(asked, near);
  if (expected.empty()) return std::move(nearest.answers);
  const Usable otherwise = default_for(bucket, bucket.edge);
  const bool is_default = std::ranges::all_of(expected, [&](const Answer& each) { return each == otherwise; });
  return is_default ? std::vector<Answer>() : std::move(expected);
}

}  // namespace kiln::answer

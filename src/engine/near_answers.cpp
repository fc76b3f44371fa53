#include "engine/near_answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "cuda/device.hpp"
#include "tune/guess.hpp"
#include "tune/model.hpp"
#include "tune/neighbours.hpp"
#include "tune/serving.hpp"

namespace kiln::engine {
namespace {

// Between buckets that are about as far, such as the next smaller and the next larger one, distance does not tell which serves
// better; how blocks fill the device does. H200, each bucket of gemm served by the others: a 95th percentile of 1.06 of the
// best time with this, of 1.48 by distance alone.
constexpr double about_as_near = 1 + 1e-9;  // doublings
// How many doublings away a record's config may be outdone by one that was never measured, and by how much the model must expect
// that. H200, gemm served by buckets three and more doublings away: a 95th percentile of 1.15 of the best time, 1.35 and
// more without; nearer, records do better than the model.
constexpr double far_away = 2;
constexpr double outdone_by = 1.25;
// Each is a config that some launch may have compiled; further ones are there for sizes that the first ones refuse.
constexpr std::size_t most_answers = 8;

/// Where the question is put, and to whom.
struct Asked {
  const spec::Op& op;
  const Problem& bucket;
  const spec::DeviceFacts& device;
  Regime regime;
  std::string bucket_text;
  bool is_current;  // a context of `device` is current, so that libraries can be asked
};

bool is_current_device(const spec::DeviceFacts& device) {
  const cuda::Driver* driver = cuda::Driver::find();
  CUcontext context = nullptr;
  CUdevice ordinal = 0;
  if (driver == nullptr || driver->cuCtxGetDevice == nullptr || driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
      context == nullptr || driver->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
    return false;
  return cuda::device_info(ordinal).facts.device_class() == device.device_class();
}

/// Answers of one record that stand or fall together, and the time that the first of them is expected to take at the bucket's upper edge.
struct Group {
  std::vector<Answer> answers;
  double expected_ns = 0;
};

double expected_ns(const Asked& asked, const tune::NearRecord& near, const tune::Serving& serving) {
  const spec::Implementation& implementation = *serving.usable.implementation;
  const spec::Config& config = serving.usable.config;
  const auto timed = spec::parse_region(asked.op, near.bucket, serving.choice.sizes);
  const Problem& there_at = timed ? timed->high : near.bucket;
  const Problem& here_at =
      spec::open_sizes(asked.op, near.bucket) == spec::open_sizes(asked.op, asked.bucket) ? serving.at() : asked.bucket;
  const double here = tune::estimate(asked.op, implementation, here_at, asked.device, config, asked.regime).ns;
  const double there = tune::estimate(asked.op, implementation, there_at, near.device, config, asked.regime).ns;
  const double expected = serving.choice.cost_ns * (here / there);
  return std::isfinite(expected) && expected > 0 ? expected : std::numeric_limits<double>::infinity();
}

bool has_estimate(const spec::Implementation& implementation) {
  return implementation.is_library() || tune::has_model(implementation);
}

/// The record with its choices as this device may launch them.
store::Record adapted(const Asked& asked, const tune::NearRecord& near) {
  store::Record record = near.found.value;
  record.candidates.clear();
  std::erase_if(record.choices, [&](const store::Choice& choice) {
    const spec::Implementation* implementation = asked.op.find(choice.implementation);
    return implementation != nullptr && implementation->is_library() && !near.same_device && !asked.is_current;
  });
  for (store::Choice& choice : record.choices) {
    const spec::Implementation* implementation = asked.op.find(choice.implementation);
    if (implementation == nullptr || implementation->is_library()) continue;
    auto config = spec::parse_config(*implementation, choice.config);
    if (!config || !spec::broken_constraint(asked.op, *implementation, asked.bucket, asked.device, *config)) continue;
    const spec::Config usual = spec::kernel_config(*implementation, std::move(*config));
    if (!spec::broken_constraint(asked.op, *implementation, asked.bucket, asked.device, usual))
      choice.config = spec::to_string(*implementation, usual);
  }
  return record;
}

std::string why_near(const Asked& asked, const tune::NearRecord& near, const tune::Serving& serving) {
  const store::Record& record = near.found.value;
  const bool is_same = record.bucket == asked.bucket_text;
  const std::string of = near.same_device ? "" : " of " + record.device_class;
  std::string why = "no usable record for this bucket; ";
  why += is_same ? fmt::format("the same bucket's{}, {:.1f} doublings away", of, near.distance)
                 : fmt::format("the nearest is {}{}, {:.1f} doublings away", record.bucket, of, near.distance);
  const auto same_kernel = [&](const store::Choice& each) {
    return each.implementation == serving.choice.implementation && each.config == serving.choice.config;
  };
  if (std::ranges::none_of(record.choices, same_kernel)) why += ", launched as usual: not early on this device";
  return why;
}

Answer answer_of(const Asked& asked, const tune::NearRecord& near, const tune::Serving& serving) {
  Answer answer;
  answer.origin = Origin::nearest;
  answer.role = serving.choice.role;
  answer.region = serving.region;
  answer.at = serving.at();
  answer.implementation = serving.usable.implementation;
  answer.config = serving.usable.config;
  answer.cost_ns = serving.choice.cost_ns;
  answer.timed_at = near.found.value.bucket == asked.bucket_text ? "of the nearest device" : "of the nearest bucket";
  answer.compiler = serving.choice.compiler;
  answer.distance = near.distance;
  answer.why = why_near(asked, near, serving);
  return answer;
}

/// One group where the record's intervals hold here too, else one for each of its choices, fastest first.
std::vector<Group> groups_of(const Asked& asked, const tune::NearRecord& near) {
  const tune::Servings servings = tune::servings_of(asked.op, asked.bucket, asked.device, adapted(asked, near));
  const bool has_intervals = spec::open_sizes(asked.op, near.bucket) == spec::open_sizes(asked.op, asked.bucket);
  std::vector<Group> groups;
  for (const auto* role : {&servings.fastest, &servings.without_library})
    for (const tune::Serving& serving : *role) {
      const double ns = expected_ns(asked, near, serving);
      if (groups.empty() || !has_intervals) groups.emplace_back();
      groups.back().answers.push_back(answer_of(asked, near, serving));
      const bool is_fastest = has_intervals && serving.choice.role == store::Role::fastest;
      if (is_fastest || groups.back().answers.size() == 1) groups.back().expected_ns = ns;  // at last the upper edge's
    }
  return groups;
}

bool is_same_bucket(const Asked& asked, const tune::NearRecord& near) {
  return near.found.value.bucket == asked.bucket_text;
}

/// 0: this device's own, and the same bucket of a device of its architecture; 1: the same bucket of another; 2: the others.
int tier_of(const Asked& asked, const tune::NearRecord& near) {
  const bool same = is_same_bucket(asked, near);
  if (near.same_device || (same && near.device.sm() == asked.device.sm())) return 0;
  return same ? 1 : 2;
}

/// The records in the order of their tiers, in each the same bucket first, then by distance, then as they were.
std::vector<tune::NearRecord> in_tiers(const Asked& asked, std::vector<tune::NearRecord> near) {
  const auto place = [&](const tune::NearRecord& each) {
    return std::tuple(tier_of(asked, each), !is_same_bucket(asked, each), each.distance);
  };
  std::ranges::stable_sort(near, {}, place);
  return near;
}

/// Whether some answer is legal at both ends of the bucket: then it is legal nearly everywhere in it.
bool serves_all(const Asked& asked, const std::vector<Answer>& answers) {
  const spec::Region whole = spec::whole_of(asked.op, asked.bucket);
  return std::ranges::any_of(answers, [&](const Answer& answer) {
    return answer.region.high == whole.high &&
           !spec::broken_constraint(asked.op, *answer.implementation, answer.region.low, asked.device, answer.config);
  });
}

void append(std::vector<Answer>& answers, std::vector<Group>& groups) {
  for (Group& group : groups) {
    if (answers.size() >= most_answers) return;
    for (Answer& answer : group.answers) {
      const bool is_known = std::ranges::any_of(answers, [&](const Answer& each) {
        return each.implementation == answer.implementation && each.config == answer.config &&
               each.region == answer.region;
      });
      if (!is_known) answers.push_back(std::move(answer));
    }
  }
}

/// Records that are about as near as the first of them: their choices are compared by expected time.
struct Meeting {
  int tier = 0;
  std::optional<double> nearest;  // distance of the first that is not the same bucket's
  const tune::NearRecord* same_bucket = nullptr;
  std::vector<Group> groups;

  [[nodiscard]] bool takes(const Asked& asked, const tune::NearRecord& near) const {
    if (groups.empty()) return true;
    if (tier_of(asked, near) != tier) return false;
    return is_same_bucket(asked, near) || !nearest || near.distance <= *nearest + about_as_near;
  }
  /// The nearest device's record serves the same bucket; those of farther ones add nothing.
  [[nodiscard]] bool is_superseded(const Asked& asked, const tune::NearRecord& near) const {
    return same_bucket != nullptr && is_same_bucket(asked, near) && tier_of(asked, near) == tier &&
           near.device.device_class() != same_bucket->device.device_class();
  }
  void add(const Asked& asked, const tune::NearRecord& near, std::vector<Group> more) {
    tier = tier_of(asked, near);
    const bool same = is_same_bucket(asked, near);
    if (same && same_bucket == nullptr) same_bucket = &near;
    if (!same && !nearest) nearest = near.distance;
    std::ranges::move(more, std::back_inserter(groups));
  }
  /// Behind the others, where all have an estimate those that take least first.
  void end(std::vector<Answer>& answers) {
    const auto is_estimated = [](const Group& group) { return has_estimate(*group.answers.front().implementation); };
    if (std::ranges::all_of(groups, is_estimated)) std::ranges::stable_sort(groups, {}, &Group::expected_ns);
    append(answers, groups);
    *this = {};
  }
};

std::vector<Answer> answers_of(const Asked& asked, const std::vector<tune::NearRecord>& near) {
  std::vector<Answer> answers;
  Meeting meeting;
  for (const tune::NearRecord& each : near) {
    if (meeting.is_superseded(asked, each)) continue;
    if (!meeting.takes(asked, each)) {
      meeting.end(answers);
      if (serves_all(asked, answers) || answers.size() >= most_answers) return answers;
    }
    if (auto groups = groups_of(asked, each); !groups.empty()) meeting.add(asked, each, std::move(groups));
  }
  meeting.end(answers);
  return answers;
}

bool is_outdone(const Asked& asked, const Answer& nearest, const tune::Usable& guess) {
  if (guess.implementation == nullptr || !tune::has_model(*nearest.implementation)) return false;
  const auto ns = [&](const spec::Implementation& implementation, const spec::Config& config) {
    return tune::estimate(asked.op, implementation, asked.bucket, asked.device, config, asked.regime).ns;
  };
  return ns(*nearest.implementation, nearest.config) > outdone_by * ns(*guess.implementation, guess.config);
}

Answer answer_of(const Asked& asked, tune::Usable guess, std::string why) {
  Answer answer;
  answer.origin = Origin::model;
  answer.region = spec::whole_of(asked.op, asked.bucket);
  answer.at = asked.bucket;
  answer.implementation = guess.implementation;
  answer.config = std::move(guess.config);
  answer.why = std::move(why) + "; of what is legal the model expects this to be the fastest";
  return answer;
}

/// The model's choice, and where the lowest sizes of the bucket break its constraints the best of those that hold there too.
std::vector<Answer> guesses(const Asked& asked, tune::Usable guess, const std::string& why) {
  if (guess.implementation == nullptr) return {};
  const Problem low = spec::low_corner(asked.op, asked.bucket);
  const bool is_partial =
      spec::broken_constraint(asked.op, *guess.implementation, low, asked.device, guess.config).has_value();
  std::vector<Answer> answers{answer_of(asked, std::move(guess), why)};
  if (!is_partial) return answers;
  tune::Usable everywhere = tune::guess_for(asked.op, low, asked.device, asked.regime);
  if (everywhere.implementation != nullptr) answers.push_back(answer_of(asked, std::move(everywhere), why));
  return answers;
}

}  // namespace

std::vector<Answer> near_answers(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device,
                                 Regime regime, store::Layers& layers) {
  const Asked asked{op, bucket, device, regime, spec::to_string(op, bucket), is_current_device(device)};
  auto near = answers_of(asked, in_tiers(asked, tune::near_records(layers, op, bucket, device, regime)));
  if (!near.empty() && near.front().distance <= far_away) return near;
  tune::Usable guess = tune::guess_for(op, bucket, device, regime);
  const bool model_first = near.empty() || is_outdone(asked, near.front(), guess);
  const std::string why = near.empty()
                              ? "no record is near"
                              : fmt::format("the nearest record is {:.1f} doublings away", near.front().distance);
  std::vector<Answer> answers = guesses(asked, std::move(guess), why);
  answers.insert(model_first ? answers.end() : answers.begin(), std::make_move_iterator(near.begin()),
                 std::make_move_iterator(near.end()));
  return answers;
}

}  // namespace kiln::engine

// A record that a library won has a runner-up: the fastest config of the same tune that needs no library. It serves wherever the library
// does not: where it is missing or refuses the algorithm, and for lengths on the device.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tune/deploy.hpp"

namespace kiln::tune {

struct RunnerUp {
  Problem at;  // what it was timed at and is made ready for: the bucket, or the edge of a part of it
  store::Record record;
  Usable usable;
  bool stale = false;
};

/// Of the records that hold beside the one with this key, its runner-up (spec::runner_up_key). Nothing when there is none, when its
/// config is not declared or legal at `at`, and when a library computes that too.
std::optional<RunnerUp> runner_up_of(const spec::Op& op, const Problem& at, const spec::DeviceFacts& device,
                                     std::string_view key, std::span<const store::Record> beside);

/// What answers where a record was stored: it, or its runner-up where that alone can serve.
struct Answer {
  store::Record record;
  Usable usable;                             // without an implementation where neither can serve
  std::optional<RunnerUp> runner_up;         // of a record that a library computes
  std::optional<store::Record> passed_over;  // what was stored, where it cannot serve and its runner-up does
  std::string why_passed_over;
};
Answer answer_of(const spec::Op& op, const Problem& at, const spec::DeviceFacts& device, const store::Record& stored,
                 std::span<const store::Record> beside);
/// Has the runner-up, which is there, answer in its place.
void pass_over(Answer& answer, std::string why);

}  // namespace kiln::tune

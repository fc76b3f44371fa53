// A bucket that is split: up to an edge another config than the bucket's own is the faster one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tune/runner_up.hpp"

namespace kiln::tune {

/// The answer for the bucket's problems up to `edge` on spec::refined_axis(op), below any of a smaller edge.
struct Refinement : Answer {
  std::int64_t edge = 0;
  Problem at;  // the bucket, with its axis at the edge: what the config was timed at and is made ready for
  bool stale = false;
};

struct Refinements {
  std::vector<Refinement> usable;  // by edge
  std::int64_t unusable = 0;  // whose edge does not lie in the bucket, or whose config is not declared or legal at it
};

/// What a refinement of the bucket with this key was timed at: the bucket with its axis at the edge. Nothing for another key, and for
/// an edge that is not inside the bucket.
std::optional<Problem> refined_problem(const spec::Op& op, const Problem& bucket, std::string_view record_key,
                                       std::string_view key);

/// What the records that hold beside the bucket's, whose key is `record_key`, make of it. The key alone says where one applies.
Refinements refinements_of(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device,
                           std::string_view record_key, std::span<const store::Record> beside);

/// The one that answers for a problem of the bucket, or null: then the bucket's own record does.
const Refinement* covering(const spec::Op& op, std::span<const Refinement> refinements, const Problem& problem);

}  // namespace kiln::tune

// An op without some of its implementations: what Kiln's own kernels do where a library would serve.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/state.hpp"
#include "jit/executable.hpp"
#include "tune/verification_case.hpp"

namespace bench {

/// What serves a problem of a restricted op.
struct RestrictedPlan {
  std::string implementation, config;
  bool tuned = false;         // on the way
  std::int64_t compiles = 0;  // for that
  kiln::jit::Executable executable;
  kiln::tune::TrialWorkspace workspace;
};

class RestrictedOp {
 public:
  /// `options.overlay` keeps what is tuned, and must be another file than that of the whole op: one key, two answers.
  /// `splits`: so many lower sizes of a bucket are tuned too and split off where that pays, as kiln tune --refine does.
  RestrictedOp(const kiln::Options& options, std::string_view op, std::span<const std::string> without, int splits);
  /// By the record of its file, tuned first where there is none. The context must be current. Throws as tune::tune_bucket does.
  RestrictedPlan plan(const kiln::Problem& problem);
  /// Tunes where there is no record. Whether there was none.
  bool make_ready(const kiln::Problem& problem);

 private:
  kiln::engine::Lookup look_up(const kiln::Problem& problem);
  void tune(const kiln::engine::Lookup& missed);
  kiln::engine::State state_;
  int splits_;
  bool is_restricted_;  // its file is of no use to others, so it need not hold what nobody asks for
  kiln::spec::Op op_;
};

}  // namespace bench

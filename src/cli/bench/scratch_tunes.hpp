// Configs tuned at sizes that end no bucket of the op. They are not kept.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cli/bench/contest.hpp"

namespace kiln::cli::bench {

/// The op with every length a bucket of its own.
spec::Op with_exact_axes(spec::Op op);

struct ScratchTune {
  Contender winner;
  store::Provenance provenance;
  std::optional<store::Record> runner_up;  // tune::TuneResult::runner_up
};

class ScratchTunes {
 public:
  ScratchTunes(engine::State& state, spec::Op op);
  /// What the contenders are configs of, and contests between them are held over.
  [[nodiscard]] const spec::Op& op() const noexcept { return op_; }
  /// As a bucket with these upper edges, or a part of one (tune::TuneRequest::lowest), tuned once for each problem. Throws as
  /// tune::tune_bucket does.
  const ScratchTune& at(const Problem& problem, std::int64_t lowest = 0);
  /// A record's words as a contender of op(). Throws Error(not_tuned) when they are not declared.
  [[nodiscard]] Contender contender(std::string_view implementation, std::string_view config) const;

 private:
  engine::State& state_;
  spec::Op op_;
  std::map<std::string, ScratchTune> tuned_;
};

}  // namespace kiln::cli::bench

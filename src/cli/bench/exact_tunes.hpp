// Configs tuned for single problems, as if each length were a bucket of its own. They are not kept.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cli/bench/contest.hpp"

namespace kiln::cli::bench {

struct ExactTune {
  Contender winner;
  store::Provenance provenance;
};

class ExactTunes {
 public:
  ExactTunes(engine::State& state, const spec::Op& op);
  /// The op with every length a bucket of its own; what contests between its configs are held over.
  [[nodiscard]] const spec::Op& op() const noexcept { return exact_; }
  /// Tuned once for each problem. Throws as tune::tune_bucket does.
  const ExactTune& at(const Problem& problem);
  /// A record's words as a contender of op(). Throws Error(not_tuned) when they are not declared.
  [[nodiscard]] Contender contender(std::string_view implementation, std::string_view config) const;

 private:
  engine::State& state_;
  spec::Op exact_;
  std::map<std::string, ExactTune> tuned_;
};

}  // namespace kiln::cli::bench

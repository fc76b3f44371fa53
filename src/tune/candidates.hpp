// What a tune may try: the lengths of a bucket, every config that is worth trying at one of them, and what is expected of each.
#pragma once

#include <string>
#include <vector>

#include "jit/specialisation.hpp"
#include "manifest/problem.hpp"
#include "store/layers.hpp"
#include "tune/lengths.hpp"
#include "tune/search.hpp"

namespace kiln::tune {

struct Entry {
  const manifest::Implementation* implementation = nullptr;
  manifest::Config config;
  Problem at;  // the largest length at which it is legal, which it is made ready for
  jit::Specialisation specialisation;
  double correction = 1;  // of the model's estimates, by what was measured near this bucket
  // What became of it.
  store::Verdict verdict = store::Verdict::not_timed;
  std::string reason;
  int registers = 0;
  std::int64_t spill_bytes = 0;
};

struct Candidates {
  Lengths lengths;
  std::vector<Entry> entries;  // the op's default first, where it is legal
  bool has_baseline = false;
  Expectations expectations;
};

struct CandidatesRequest {
  const manifest::Op& op;
  const Problem& bucket;
  const manifest::DeviceFacts& device;
  Regime regime = Regime::cold_l2;
  std::string arch;
  bool all = false;  // also those of which the model expects much less than of others
};

/// `neighbours`: records near this bucket with their candidates, nearest first; they correct the model, and what won in them is tried
/// whatever is expected of it. A library is asked for its algorithms at each length, for which a context must be current.
Candidates candidates_of(const CandidatesRequest& request, std::span<const store::Record> neighbours);

}  // namespace kiln::tune

// The candidates of a tune: the sizes at which a bucket is timed, every config worth trying at one of them, and their
// expected times.
#pragma once

#include <string>
#include <vector>

#include "answer/timed_sizes.hpp"
#include "jit/specialisation.hpp"
#include "manifest/variant.hpp"
#include "store/layers.hpp"
#include "tune/bench.hpp"
#include "tune/machine.hpp"
#include "tune/search.hpp"

namespace kiln::tune {

/// A candidate, and what became of it.
struct Candidate : manifest::Variant {
  Problem at;  // the largest size at which it is legal; its executable is made for it
  jit::Specialisation specialisation;
  double correction = 1;  // factor on the model's estimates, from measurements near this bucket
  Admission admission;
};

/// What a library proposes first at a run of the sizes of the only open axis where it was asked, of which `last_size`
/// is the largest. Sizes between those asked may get other proposals. The proposals of several libraries stand in one
/// list.
struct FirstProposal {
  std::int64_t last_size = 0;
  std::size_t candidate = 0;
};

struct Candidates {
  answer::TimedSizes sizes;
  std::vector<Candidate> list;  // the op's default first, where it is legal
  bool has_baseline = false;
  Expectations expectations;
  std::vector<FirstProposal> proposals;  // ascending
};

struct CandidatesRequest {
  manifest::Bucket bucket;
  std::string arch;
  bool all = false;                // false: without candidates that the model expects to be much slower than others
  bool has_communicator = false;   // of the team: without one, NCCL takes no part
  Libraries* libraries = nullptr;  // null: those of this process
};

/// Returns the candidates for a bucket. `neighbours`: records near it with their candidates, nearest first. They
/// correct the model, and their winners are tried in the first round. Libraries propose algorithms at each size, for
/// which a context must be current.
Candidates candidates_of(const CandidatesRequest& request, std::span<const store::Record> neighbours);

}  // namespace kiln::tune

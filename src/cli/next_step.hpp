// Says which commands bring what a command found missing.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "answer/resolver.hpp"
#include "cli/output.hpp"
#include "cli/session.hpp"
#include "cli/target.hpp"
#include "manifest/bucketing.hpp"
#include "manifest/op_bucket.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

struct MissingWork {
  std::vector<manifest::OpBucket> records;  // buckets without a record that can serve, each once
  std::map<const manifest::Op*, std::unordered_set<Problem, manifest::ProblemHash>> known{};  // those of them
  bool code = false;                // some config of a record has its machine code in no file
  std::set<std::size_t> untrusted;  // layers that have missing machine code and may not supply it
};

/// The commands that bring it, without the options that all commands share.
struct Remedy {
  std::string
      tune;  // "kiln prewarm w.toml -o FILE.kiln": on a GPU, tunes what has no record, into the overlay without -o
  std::string compile = {};  // "kiln prewarm w.toml": with an architecture and -o, compiles without a GPU
  std::string note = {};     // what the reader must put into `compile`, or empty
};

struct NextStep {
  std::string what;  // "compile what is missing, without a GPU, then add --base FILE.kiln"
  std::vector<std::string> commands = {};
};

/// Adds a bucket's record when `answer` is null, else the answer's machine code if the files lack it.
/// Leaves out a bucket that no implementation can serve on the target.
void add_missing(MissingWork& missing, const manifest::OpBucket& of, const answer::Answer* answer, const Target& target,
                 store::Layers& layers);

/// Returns a word as a POSIX shell reads it back.
std::string shell_word(const std::string& word);
/// Returns the options that decide which ops, records and machine code are found, each after a space.
std::string options_that_find(const Globals& globals);
/// The ranks of the first of these buckets that is of an op of a team; 0 where none is.
int ranks_for(const std::vector<manifest::OpBucket>& buckets);
/// Returns no step when nothing is missing. The command that tunes gets --ranks where an op of a team has no record.
std::vector<NextStep> next_steps(const Globals& globals, const Target& target, const store::Layers& layers,
                                 const MissingWork& missing, const Remedy& remedy);
/// Prints "next: WHAT" and below it each command, indented and alone on its line.
void print_next_steps(const std::vector<NextStep>& steps);
Json json_of(const std::vector<NextStep>& steps);

}  // namespace kiln::cli

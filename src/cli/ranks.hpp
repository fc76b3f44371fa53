// The ranks of a command that tunes ops of a team: forks of it, by --ranks, or what a launcher began.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cli/session.hpp"
#include "kiln/tuner.hpp"
#include "manifest/op_bucket.hpp"

namespace kiln::cli {

using manifest::OpBucket;

void declare_ranks(CLI::App& command, int& ranks);

/// The ranks that a command runs on: `asked`, else the launcher's. Throws Error(bad_input) where there are none, which
/// says how to begin them, and as team::launched_rank does. `need`: why there must be some, "all_reduce is an op of a
/// team".
int world_of(int asked, std::string_view need);

/// Removes the buckets of ops of a team with another number of ranks than `world`, and says so in a note. 0: all that
/// are of a team.
void leave_out_other_teams(const Globals& globals, std::vector<OpBucket>& buckets, int world);

/// A command on several ranks.
struct RankWork {
  const manifest::Catalogue& ops;
  Options options;  // of rank 0, without the team; the others keep their records in memory
  Retune retune = Retune::none;
  /// On each rank, once the ranks have met: the buckets to tune, some of them of a team. The files are as rank 0 finds
  /// them, and the device's facts have the team's link.
  std::function<std::vector<OpBucket>(const Globals&, const manifest::DeviceFacts&)> find;
  /// Rank 0 alone calls `find`, and the others take its buckets of a team. For files that other processes may write
  /// meanwhile, which ranks would read unlike. All ranks have the same arguments then, as those that `--ranks` begins.
  bool finds_on_rank_0 = false;
  /// On rank 0: tunes them by a Tuner with these options, prints, and returns the exit status. The others take part in
  /// its one tune meanwhile.
  std::function<int(const Options&, std::span<const OpBucket>)> lead;
};

/// Runs the command on all ranks, and returns the same exit status on each: that of rank 0 unless another rank alone
/// failed. Rank 0 alone prints, and each rank its own errors. With `asked` ranks this process only waits for them; else
/// it is the launcher's rank.
int on_ranks(const Globals& globals, int asked, const RankWork& work);

}  // namespace kiln::cli

#include "cli/ranks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <string>

#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "cli/tuner_commands.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "kiln/team.hpp"
#include "manifest/limits.hpp"
#include "process/ranks.hpp"
#include "team/exchange.hpp"
#include "team/state.hpp"
#include "tune/team_tunes.hpp"

namespace kiln::cli {
namespace {

/// How this process takes part.
struct Seat {
  int rank = 0;
  int world = 1;
  std::string name;  // of the team that --ranks made; empty: the launcher's
  bool is_launched = false;
};

void discard_output() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0) throw Error(ErrorKind::io, "/dev/null cannot be opened");
  close(nowhere);
}

std::unique_ptr<team::TeamState> meet(const Seat& place) {
  TeamOptions options;
  if (place.is_launched) return team::launched_state(options);
  options.device = place.rank;
  return std::make_unique<team::TeamState>(team::Membership{place.rank, place.world, place.name}, options,
                                           std::nullopt);
}

/// The buckets of ops of a team, a line each.
std::string text_of_team(std::span<const OpBucket> buckets) {
  std::string text;
  for (const OpBucket& each : buckets)
    if (each.is_of_team()) text += fmt::format("{} {}\n", each.op->name, manifest::to_string(*each.op, each.bucket));
  return text;
}

/// Throws Error(bad_input) for a bucket that these ops do not have.
std::vector<OpBucket> buckets_in(const std::string& text, const manifest::Catalogue& ops) {
  std::vector<OpBucket> buckets;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const manifest::Op* op = ops.op(line.substr(0, end));
    const auto bucket =
        op == nullptr ? std::nullopt : manifest::parse_bucket(*op, line.substr(std::min(end + 1, line.size())));
    if (!bucket)
      throw Error(
          ErrorKind::bad_input,
          fmt::format("rank 0 tunes {}, which this rank's ops do not have; give all ranks the same --templates", line));
    buckets.push_back({op, *bucket});
  }
  return buckets;
}

/// The part of another rank than 0 in its tune.
void take_part(Globals globals, Options options, std::span<const OpBucket> buckets, const RankWork& work) {
  globals.overlay = "";  // rank 0 keeps the records
  options.overlay = std::filesystem::path();
  std::vector<OpBucket> of_team;
  std::ranges::copy_if(buckets, std::back_inserter(of_team), &OpBucket::is_of_team);
  tune_with_progress(globals, make_tuner(globals, "", options), work.ops, of_team, {.retune = work.retune});
}

/// Collective, where each rank has come to the end of its work: the exit statuses, by rank. Throws Error(io) where one
/// has not.
std::vector<int> gather_statuses(team::Rendezvous& rendezvous, int own) {
  const team::Patience patience(rendezvous, std::chrono::hours(24 * 7));  // rank 0 may tune other ops for hours
  rendezvous.barrier();
  std::vector<int> all;
  for (const std::string& each : rendezvous.all_gather(std::to_string(own))) all.push_back(std::stoi(each));
  return all;
}

/// What all ranks do: meet, find the buckets, share the memory that these need, tune, and agree on the exit status.
class Part {
 public:
  Part(const Globals& globals, Seat place, const RankWork& work)
      : globals_(place.rank == 0 ? globals : silenced(globals)), place_(std::move(place)), work_(work) {}

  int run() {
    if (place_.rank > 0) discard_output();
    met_ = meet(place_);
    try {
      status_ = act();
    } catch (const Error& error) {
      error_ = error;
      status_ = exit_code_of(error.kind());
    }
    return agreed_status();
  }

 private:
  /// Sizes decide the team's memory, so unlike ones are told of before that is shared.
  void find(const manifest::DeviceFacts& device) {
    const team::Patience patience(rendezvous());
    team::on_all_ranks(rendezvous(), "finding what to tune", [&] {
      if (place_.rank == 0 || !work_.finds_on_rank_0) buckets_ = work_.find(globals_, device);
    });
    if (work_.finds_on_rank_0) take_those_of_rank_0();
    tune::require_same_tunes(rendezvous(), manifest::buckets_on(buckets_, device, work_.options.regime), work_.retune);
  }

  void take_those_of_rank_0() {
    const std::string text = team::broadcast_text(rendezvous(), 0, text_of_team(buckets_));
    team::on_all_ranks(rendezvous(), "reading what rank 0 found", [&] {
      if (place_.rank > 0) buckets_ = buckets_in(text, work_.ops);
    });
  }

  int act() {
    const manifest::DeviceFacts device = met_->facts();
    find(device);
    met_->share_memory(std::max(TeamOptions{}.bytes, tune::team_bytes_for(manifest::buckets_on(buckets_, device))));
    team_ = team::team_of(std::move(met_));
    Options options = work_.options;
    options.team = team_;
    options.device = team_->device();
    if (place_.rank == 0) return work_.lead(options, buckets_);
    take_part(globals_, options, buckets_, work_);
    return exit_good;
  }

  /// Throws this rank's error where rank 0 does not tell it.
  int agreed_status() {
    std::vector<int> all;
    try {
      all = gather_statuses(rendezvous(), status_);
    } catch (const Error&) {
      if (error_) throw *error_;
      throw;
    }
    if (error_ && (place_.rank == 0 || all.front() == exit_good)) throw *error_;
    const auto failed = std::ranges::find_if(all, [](int each) { return each != exit_good; });
    return failed == all.end() ? exit_good : *failed;
  }

  [[nodiscard]] team::Rendezvous& rendezvous() { return team_ ? team::state_of(*team_).rendezvous : met_->rendezvous; }

  Globals globals_;
  Seat place_;
  const RankWork& work_;
  std::vector<OpBucket> buckets_;
  std::unique_ptr<team::TeamState> met_;  // null once there is a team
  std::shared_ptr<Team> team_;
  int status_ = exit_good;
  std::optional<Error> error_;
};

int take_part_as(const Globals& globals, const Seat& place, const RankWork& work) try {
  return Part(globals, place, work).run();
} catch (const Error& error) {
  if (place.rank == 0) throw;
  throw Error(error.kind(), fmt::format("rank {}: {}", place.rank, error.what()));
}

/// The ranks of --ranks each have a GPU of their own, in order.
int as_fork(const Globals& globals, const Seat& place, const RankWork& work) {
  const auto devices = static_cast<int>(cuda::devices().size());
  if (devices >= place.world) return take_part_as(globals, place, work);
  if (place.rank > 0) return exit_usage;  // rank 0 says why
  throw Error(ErrorKind::bad_input,
              fmt::format("--ranks is {}, and this process sees {}; give as many ranks as GPUs, or fewer", place.world,
                          counted(devices, "GPU")));
}

int wait_for(const Globals& globals, process::Ranks& ranks) {
  const process::RanksEnd end = ranks.wait();
  if (end.was_interrupted && end.status != exit_good) return exit_interrupted;
  if (end.why.empty()) return end.status;
  say_error(globals.json, to_string(ErrorKind::team_failed), end.why);
  return exit_code_of(ErrorKind::team_failed);
}

}  // namespace

void declare_ranks(CLI::App& command, int& ranks) {
  command
      .add_option(
          "--ranks", ranks,
          "For ops of a team: start N ranks, each on a GPU of its own. Not needed where torchrun, mpirun or srun starts the "
          "command")
      ->transform(whole_number_from(1, manifest::most_team_ranks))
      ->type_name("N");
}

int world_of(int asked, std::string_view need) {
  if (asked > manifest::most_kernel_ranks)
    throw Error(
        ErrorKind::bad_input,
        fmt::format("--ranks {} asks for more ranks than kernels reach on a host, {}; let a launcher begin them, "
                    "to meet at KILN_TEAM_ADDRESS, where NCCL serves up to {}",
                    asked, manifest::most_kernel_ranks, manifest::most_team_ranks));
  if (asked > 0) return asked;
  if (team::is_launched()) return team::launched_rank().membership.world;
  throw Error(
      ErrorKind::bad_input,
      fmt::format(
          "{}, whose ranks tune together. Add --ranks 2, for two GPUs of this host, or let a launcher begin the "
          "command on each rank: torchrun --no-python --nproc-per-node 2 kiln ..., mpirun -n 2 kiln ..., "
          "srun -n 2 kiln .... Ranks on several hosts meet at KILN_TEAM_ADDRESS",
          need));
}

void leave_out_other_teams(const Globals& globals, std::vector<OpBucket>& buckets, int world) {
  const auto left_out = std::erase_if(buckets, [&](const OpBucket& each) {
    return each.is_of_team() && each.bucket.axes[static_cast<std::size_t>(each.op->team_axis())] != world;
  });
  if (left_out > 0 && !globals.quiet)
    note(fmt::format("{} of ops of a team {} left out{}; --ranks N tunes those of N ranks",
                     counted(static_cast<std::int64_t>(left_out), "bucket"),
                     verb(static_cast<std::int64_t>(left_out), "is", "are"),
                     world > 0 ? fmt::format(", which {} of other numbers of ranks than {}",
                                             verb(static_cast<std::int64_t>(left_out), "is", "are"), world)
                               : ""));
}

namespace {

/// Each process of a launcher would begin ranks of its own. A batch script of Slurm may: it is one process, whatever
/// its variables say.
void require_no_launcher() {
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"})
    if (const auto world = team::process_variable(name); world && *world != "1")
      throw Error(ErrorKind::bad_input,
                  fmt::format("--ranks begins ranks, and {} is {}: a launcher has begun this one of several; leave "
                              "--ranks out, or unset the variable",
                              name, *world));
}

}  // namespace

int on_ranks(const Globals& globals, int asked, const RankWork& work) {
  if (globals.device != 0)
    throw Error(ErrorKind::bad_input,
                "--device is given, and each rank of a team has the GPU of its local rank; leave it out");
  if (asked == 0) {
    const team::LaunchedRank launched = team::launched_rank();
    return take_part_as(globals, {launched.membership.rank, launched.membership.world, {}, true}, work);
  }
  require_no_launcher();
  const std::string name = unique_team_name();
  process::Ranks ranks(asked);
  return ranks.rank() ? as_fork(globals, {*ranks.rank(), asked, name, false}, work) : wait_for(globals, ranks);
}

}  // namespace kiln::cli

#include "team/environment.hpp"

#include <doctest/doctest.h>

#include <map>

#include "kiln/error.hpp"
#include "team/ranks.hpp"

using namespace kiln;
using namespace kiln::team;
using kiln::test::holds;

namespace {

using Values = std::map<std::string, std::string>;

LaunchedRank read(const Values& values) {
  return launched_rank({}, [&](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found != values.end() ? std::optional(found->second) : std::nullopt;
  });
}

std::string refusal(const Values& values) {
  try {
    read(values);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_input);
    return error.what();
  }
  return "no error";
}

Values with(Values values, const Values& more) {
  for (const auto& [name, value] : more) values[name] = value;
  return values;
}

const Values torchrun = {{"RANK", "1"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RUN_ID", "none"},
                         {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Values open_mpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"},
                         {"PMIX_NAMESPACE", "prterun-host-12@1"}};
const Values slurm = {{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "4"},  {"SLURM_LOCALID", "3"},
                      {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NNODES", "1"}};

}  // namespace

TEST_CASE("a launcher has begun a process that has a rank of one of them") {
  for (const Values& each : {torchrun, open_mpi, slurm}) {
    const auto in = [&](const Values& values) {
      return is_launched([&](const char* name) -> std::optional<std::string> {
        const auto found = values.find(name);
        return found != values.end() ? std::optional(found->second) : std::nullopt;
      });
    };
    CHECK(in(each));
    Values without = each;
    for (const char* rank : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) without.erase(rank);
    CHECK_FALSE(in(without));
  }
}

TEST_CASE("each launcher's variables give rank, world, local rank and a name") {
  const LaunchedRank by_torchrun = read(torchrun);
  CHECK(by_torchrun.launcher == "torchrun");
  CHECK(by_torchrun.membership.rank == 1);
  CHECK(by_torchrun.membership.world == 4);
  CHECK(by_torchrun.local_rank == 1);
  CHECK(by_torchrun.membership.name == "torchrun/none/0/127.0.0.1/29500");
  const LaunchedRank by_mpirun = read(open_mpi);
  CHECK(by_mpirun.launcher == "Open MPI");
  CHECK(by_mpirun.membership.rank == 2);
  CHECK(by_mpirun.membership.world == 8);
  CHECK(by_mpirun.membership.name == "Open MPI/prterun-host-12@1");
  const LaunchedRank by_srun = read(slurm);
  CHECK(by_srun.launcher == "Slurm");
  CHECK(by_srun.membership.rank == 3);
  CHECK(by_srun.local_rank == 3);
  CHECK(by_srun.membership.name == "Slurm/77/0");
}

TEST_CASE("torchrun inside mpirun inside Slurm is torchrun, and mpirun inside Slurm is mpirun") {
  CHECK(read(with(with(slurm, open_mpi), torchrun)).launcher == "torchrun");
  CHECK(read(with(slurm, open_mpi)).launcher == "Open MPI");
}

TEST_CASE("two runs of torchrun on one host, and a restart of one, have names of their own") {
  CHECK(read(torchrun).membership.name != read(with(torchrun, {{"MASTER_PORT", "29501"}})).membership.name);
  CHECK(read(torchrun).membership.name != read(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).membership.name);
}

TEST_CASE("without a launcher the variables that were asked for are named") {
  const std::string said = refusal({});
  CHECK(holds(said, "none of RANK, OMPI_COMM_WORLD_RANK and SLURM_PROCID is set"));
  CHECK(holds(said, "torchrun, mpirun or srun"));
}

TEST_CASE("a variable that is missing, no number or out of range is named") {
  CHECK(holds(refusal({{"RANK", "1"}, {"MASTER_PORT", "1"}}), "WORLD_SIZE is not"));
  CHECK(holds(refusal(with(torchrun, {{"WORLD_SIZE", "four"}})), "WORLD_SIZE is 'four', which is no number"));
  CHECK(holds(refusal(with(torchrun, {{"RANK", "4"}})), "rank 4 of 4"));
  CHECK(holds(refusal(with(open_mpi, {{"OMPI_COMM_WORLD_SIZE", "65"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "65"}})),
              "it has 1 to 64"));
  CHECK(holds(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "nothing that distinguishes this team"));
}

TEST_CASE("ranks on several hosts are refused") {
  CHECK(holds(refusal(with(torchrun, {{"WORLD_SIZE", "8"}})), "WORLD_SIZE is 8 and LOCAL_WORLD_SIZE is 4"));
  CHECK(holds(refusal(with(slurm, {{"SLURM_NNODES", "2"}})), "SLURM_NNODES is 2"));
  CHECK(holds(refusal(with(torchrun, {{"WORLD_SIZE", "128"}})), "WORLD_SIZE is 128 and LOCAL_WORLD_SIZE is 4"));
}

TEST_CASE("ranks on several hosts have an address to meet at, by option or variable, and local ranks of their own") {
  const Values two_hosts = with(torchrun, {{"WORLD_SIZE", "8"}, {"RANK", "5"}});
  CHECK(holds(refusal(two_hosts), "set KILN_TEAM_ADDRESS on all ranks to HOST:PORT"));
  const LaunchedRank found = read(with(two_hosts, {{"KILN_TEAM_ADDRESS", "node-1:29600"}}));
  CHECK(found.address == "node-1:29600");
  CHECK(found.membership.rank == 5);
  CHECK(found.membership.world == 8);
  CHECK(found.local_rank == 1);
  const LaunchedRank other_host = read(with(two_hosts, {{"RANK", "1"}, {"KILN_TEAM_ADDRESS", "node-1:29600"}}));
  CHECK(found.membership.name == other_host.membership.name);
  CHECK(read(with(slurm, {{"SLURM_NNODES", "2"}, {"KILN_TEAM_ADDRESS", "node-1:29600"}})).membership.world == 4);
  const Values both = with(two_hosts, {{"KILN_TEAM_ADDRESS", "node-1:29600"}});
  const LaunchedRank chosen = launched_rank("node-2:1", [&](const char* name) -> std::optional<std::string> {
    const auto value = both.find(name);
    return value != both.end() ? std::optional(value->second) : std::nullopt;
  });
  CHECK(chosen.address == "node-2:1");
  CHECK(read(torchrun).address.empty());
}

TEST_CASE("RANK that was set by hand and says otherwise than mpirun is refused, and taken where they agree") {
  Values by_hand = with(open_mpi, {{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"MASTER_PORT", "29500"}});
  CHECK(holds(refusal(by_hand), "RANK and WORLD_SIZE say rank 0 of 8"));
  CHECK(holds(refusal(by_hand), "OMPI_COMM_WORLD_SIZE say rank 2 of 8"));
  by_hand["RANK"] = "2";
  CHECK(read(by_hand).membership.rank == 2);
}

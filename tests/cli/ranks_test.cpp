// What a command on the ranks of a team finds before they meet.
#include "cli/ranks.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "cli/target.hpp"
#include "cli/workload.hpp"
#include "command.hpp"
#include "team/binding.hpp"
#include "tune/team_tunes.hpp"

using namespace kiln;
using namespace kiln::cli;
using kiln::testing::check_refused;
using kiln::testing::Command;

namespace {

const std::filesystem::path workloads = std::filesystem::path(KILN_SOURCE_DIR) / "cache/workloads";

}  // namespace

TEST_CASE("every workload that ships names ops and sizes that there are") {
  const manifest::Catalogue ops({});
  std::size_t files = 0;
  for (const auto& each : std::filesystem::directory_iterator(workloads)) {
    if (each.path().extension() != ".toml") continue;
    ++files;
    CHECK_FALSE(read_workloads(std::vector{each.path().string()}, ops).empty());
  }
  CHECK(files >= 9);
}

TEST_CASE("the team's memory is what the largest bucket needs") {
  const manifest::Catalogue ops({});
  const auto device = *manifest::DeviceFacts::from_device_class(h200_device_class);
  const auto buckets = read_workloads(std::vector{(workloads / "llama3_8b_tp2.toml").string()}, ops);
  // Two ranks' parts of the largest scattered product, 8192 rows of 4096 bf16 each, in whole tiles of 192 columns.
  CHECK(tune::team_bytes_for(manifest::buckets_on(buckets, device)) ==
        team::bytes_for_half(std::int64_t{2} * 8192 * (22 * 192) * 2));
  std::vector<OpBucket> others = buckets;
  std::erase_if(others, [](const OpBucket& each) { return each.op->is_of_team(); });
  REQUIRE_FALSE(others.empty());
  CHECK(tune::team_bytes_for(manifest::buckets_on(others, device)) == 0);
}

TEST_CASE("ops of a team of other numbers of ranks are left out, and all of them without ranks") {
  const manifest::Catalogue ops({});
  const auto all = buckets_of_workload(
      parse_workload("[[workload]]\nop = 'all_reduce'\naxes = { rows = 1, cols = 64, world = [2, 4] }\n"
                     "[[workload]]\nop = 'rms_norm'\naxes = { rows = 1, cols = 64 }\n",
                     "w.toml"),
      ops);
  REQUIRE(all.size() == 3);
  Globals quiet;
  quiet.quiet = true;
  for (const auto& [world, left] : {std::pair(2, 2U), {3, 1U}, {0, 1U}}) {
    auto buckets = all;
    leave_out_other_teams(quiet, buckets, world);
    CHECK(buckets.size() == left);
    CHECK(buckets.back().op->name == "rms_norm");
  }
}

TEST_CASE("ranks are asked for where an op of a team is, and refused where none is") {
  const Command command;
  check_refused(command.run("tune all_reduce rows=1 cols=64"), 2,
                "all_reduce is an op of a team, whose ranks tune together");
  check_refused(command.run("tune rms_norm rows=1 cols=64 --ranks 2"), 2, "rms_norm is none; leave it out");
  check_refused(command.run("tune all_reduce rows=1 cols=64 --ranks 9"), 2,
                "--ranks 9 asks for more ranks than kernels reach on a host, 8; let a launcher begin them");
  check_refused(command.run("tune all_reduce rows=1 cols=64 world=4 --ranks 2"), 2,
                "axis 'world' is 4, and the command runs on 2 ranks");
  const std::string workload = (workloads / "llama3_8b_tp2.toml").string();
  check_refused(command.run("prewarm " + workload), 2, "llama3_8b_tp2.toml names ops of a team");
  check_refused(command.run("prewarm " + workload + " --ranks 4"), 2,
                "axis 'world' is 2, and the command runs on 4 ranks");
  check_refused(command.run("prewarm " + (workloads / "llama3_8b.toml").string() + " --ranks 2"), 2, "names none");
  const auto covered = command.run("coverage " + workload + " --device-class H200 --overlay ''");
  CHECK(covered.status == 0);
  CHECK_MESSAGE(covered.output.find("llama3_8b_tp2.toml -o FILE.kiln --ranks 2") != std::string::npos, covered.output);
  CHECK_MESSAGE(covered.output.find("tune what is missing, on 2 GPUs of class H200") != std::string::npos,
                covered.output);
}

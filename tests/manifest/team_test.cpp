// What a manifest says of a team: its axis, its rank, symmetric workspaces, the arguments, and inputs with a part for each rank.
#include <doctest/doctest.h>

#include <algorithm>

#include "manifest/key.hpp"
#include "manifest/op.hpp"
#include "manifest/variant.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

/// A small team op with everything that a manifest can say of teams, and a descriptor of a workspace.
testing::Folder team_folder() {
  return {R"toml([op]
summary  = "each rank's rows on every rank"
revision = 1
[axes]
rows  = { bucket = "pow2", max = 4096 }
cols  = { bucket = "exact", max = 4096, multiple_of = 8 }
world = { team = true, max = 8 }
[types]
dtype = ["bf16", "f32"]
[runtime]
rank   = { team = "rank" }
stride = { type = "i64", default = "rows", min = "rows" }
[tensors]
x = { shape = ["rows", "cols"], dtype = "dtype", per_rank = true }
y = { shape = ["world", "rows", "cols"], dtype = "dtype", output = true }
[reference]
[[reference.pass]]
kernel = "gather_reference<{dtype}>"
grid   = ["rows", "world"]
block  = [256]
args   = ["x", "y", "rows", "cols", "rank"]
)toml",
          R"toml(summary  = "pushes to each rank"
[parameters]
blocks = [8, 16]
[constraints]
all = ["blocks <= 16"]
[align]
x = 16
[default]
blocks = 8
[workspace]
gathered = { bytes = "world * rows * cols * sizeof(dtype)", symmetric = true }
staged   = { bytes = "blocks * 64 * 128" }
[[pass]]
kernel = "gather_push<{dtype}, {world}>"
grid   = ["blocks + rank"]
block  = [256]
args   = ["x", { peers = "gathered" }, { team = true }, "rank", "rows", { tma = "staged", dtype = "dtype", shape = ["blocks", "64 / sizeof(dtype) * 2"], box = [1, 32] }]
)toml"};
}

const Pass& pass_of(const Op& op) { return op.implementations[0].passes[0]; }

void check_refusal(const testing::Folder& folder, std::string_view wanted) {
  const std::string message = testing::refusal_of(folder);
  CAPTURE(message);
  CAPTURE(wanted);
  CHECK(message.find(wanted) != std::string::npos);
}

struct TeamMistake {
  const char* from;
  const char* to;
  const char* message;
};

}  // namespace

TEST_CASE("an axis is the number of ranks, each of which is a bucket of its own") {
  const Op op = team_folder().parse();
  REQUIRE(op.team_axis() == 2);
  CHECK(op.axes[2].minimum == 1);
  CHECK(op.axes[2].maximum == 8);
  CHECK(policy_text(op.axes[2]) == "exact");
  Problem problem;
  problem.axes = {500, 64, 3};
  const Problem bucket = bucket_of(op, problem);
  CHECK(bucket.axes[0] == 512);
  CHECK(bucket.axes[2] == 3);
  CHECK(Bucket({op, testing::h200(), Regime::cold_l2}, bucket).key().find(" world=exact:3 ") != std::string::npos);
  CHECK(testing::scale_folder().parse().team_axis() == -1);
}

TEST_CASE("ranks may be at unlike sizes, unless a choice 'ranks' promises that they are not") {
  Op op = team_folder().parse();
  CHECK(sizes_may_differ_between_ranks(op, Problem{}));
  op.selections.front().name = "ranks";
  op.selections.front().values = {"any", "alike"};
  Problem problem;
  CHECK(sizes_may_differ_between_ranks(op, problem));
  problem.selections.front() = 1;
  CHECK_FALSE(sizes_may_differ_between_ranks(op, problem));
  for (Axis& axis : op.axes) axis.team = false;
  CHECK_FALSE(sizes_may_differ_between_ranks(op, Problem{}));
}

TEST_CASE("a team of more than 8 ranks is served by NCCL alone, where they met at an address") {
  testing::Folder folder = team_folder();
  folder.op = testing::replaced(folder.op, "team = true, max = 8", "team = true, max = 64");
  const Op op = folder.parse();
  const Implementation& kernels = op.implementations[0];
  Implementation nccl = kernels;
  nccl.workspaces.clear();
  nccl.passes.clear();
  DeviceFacts one_host = testing::h200(), network = one_host;
  one_host.link = TeamLink::nvlink;
  network.link = TeamLink::network;
  Problem problem;
  for (const std::int64_t world : {8, 9, 64}) {
    problem.axes = {512, 64, world};
    CHECK(why_not_eligible({op, one_host}, kernels, problem).has_value() == (world > 8));
    CHECK(why_not_eligible({op, one_host}, nccl, problem).has_value() == (world > 8));
    CHECK(why_not_eligible({op, network}, kernels, problem).has_value());
    CHECK_FALSE(why_not_eligible({op, network}, nccl, problem).has_value());
  }
  CHECK(why_not_eligible({op, one_host}, nccl, problem)->find("give a team of 64 TeamOptions::address") !=
        std::string::npos);
}

TEST_CASE("a record of a team's op is of one kind of link, and other ops' records of all") {
  const Op op = team_folder().parse(), alone = testing::scale_folder().parse();
  Problem problem;
  problem.axes = {512, 64, 3};
  const Problem bucket = bucket_of(op, problem);
  const auto key = [&](TeamLink link) {
    DeviceFacts device = testing::h200();
    device.link = link;
    return Bucket({op, device, Regime::cold_l2}, bucket).key();
  };
  CHECK(key(TeamLink::nvlink) != key(TeamLink::pcie));
  CHECK(key(TeamLink::pcie).find("/pcie | ") != std::string::npos);
  DeviceFacts device = testing::h200();
  device.link = TeamLink::nvlink;
  CHECK(device.device_class_for(op) == testing::h200().device_class() + "/nvlink");
  CHECK(device.device_class_for(alone) == testing::h200().device_class());
}

TEST_CASE("the rank is an i32 that grids and arguments may read") {
  const Op op = team_folder().parse();
  CHECK(op.runtime[0].team_rank);
  CHECK(op.runtime[0].type == RuntimeType::i32);
  CHECK_FALSE(op.runtime[0].default_integer);
  CHECK_FALSE(op.runtime[1].team_rank);
  CHECK(pass_of(op).grid[0].uses(op.first_runtime()));
  CHECK(op.reference[0].arguments[4].kind == ArgumentKind::runtime);
}

TEST_CASE("a kernel takes a symmetric workspace by its peers, and the team") {
  const Op op = team_folder().parse();
  CHECK(op.implementations[0].workspaces[0].symmetric);
  CHECK_FALSE(op.implementations[0].workspaces[1].symmetric);
  CHECK(pass_of(op).arguments[1].kind == ArgumentKind::peers);
  CHECK(pass_of(op).arguments[1].index == 0);
  CHECK(pass_of(op).arguments[2].kind == ArgumentKind::team);
}

TEST_CASE("a descriptor shows a half of a symmetric workspace") {
  testing::Folder folder = team_folder();
  folder.implementation = testing::replaced(folder.implementation, "tma = \"staged\"", "tma = \"gathered\", half = 1");
  const Op op = folder.parse();
  const Argument& map = pass_of(op).arguments[5];
  CHECK(map.kind == ArgumentKind::workspace_map);
  CHECK(map.index == 0);
  CHECK(map.half == 1);
}

TEST_CASE("a descriptor shows a workspace with a dtype and a shape of its own") {
  testing::Folder folder = team_folder();
  const Op op = folder.parse();
  const Argument& map = pass_of(op).arguments[5];
  CHECK(map.kind == ArgumentKind::workspace_map);
  CHECK(map.index == 1);
  CHECK(map.half == -1);
  CHECK(map.element.selection == 0);
  CHECK(map.shape.size() == 2);
  CHECK(map.strides[0].text() == "(64 / sizeof(dtype) * 2)");  // dense
  CHECK(map.strides[1].constant_value() == 1);

  folder.implementation =
      testing::replaced(folder.implementation, "dtype = \"dtype\", shape", "dtype = \"f16\", shape");
  folder.implementation = testing::replaced(folder.implementation, "* 2\"],", "* 2\"], strides = [256, 1],");
  const Op other = folder.parse();
  CHECK(pass_of(other).arguments[5].element.selection == -1);
  CHECK(pass_of(other).arguments[5].element.dtype == DType::f16);
  CHECK(pass_of(other).arguments[5].strides[0].constant_value() == 256);
}

TEST_CASE("an input may have a part for each rank") {
  const Op op = team_folder().parse();
  CHECK(op.tensors[0].per_rank);
  CHECK_FALSE(op.tensors[1].per_rank);
}

TEST_CASE("a mistake about a team in op.toml is named with its line") {
  const TeamMistake mistakes[] = {
      {"max = 8 }", "max = 65 }", "op.toml:7: found max = 65 on the team axis 'world', expected at most 64 ranks"},
      {"max = 8 }", "min = 3, max = 2 }", "op.toml:7: found the number 2 as 'max', expected 3 or more"},
      {"max = 8 }", "bucket = \"pow2\", max = 8 }",
       "op.toml:7: found the unknown key 'bucket' in axis 'world' with team = true, expected 'team', 'min' or 'max'"},
      {"max = 8 }", "max = 8, on_device = true }", "op.toml:7: found the unknown key 'on_device' in axis 'world'"},
      {"team = true, max = 8", "team = 1, max = 8", "op.toml:7: found the number 1 as 'team', expected true or false"},
      {"max = 8 }", "max = 8 }\nranks = { team = true, max = 8 }",
       "op.toml:8: found team = true on the axes 'world' and 'ranks', expected it on one axis"},
      {"world = { team = true,", "world = { bucket = \"exact\",",
       "op.toml:11: found the rank of a team as 'rank', expected an axis with team = true beside it"},
      {"team = \"rank\" }", "team = \"world\" }",
       "op.toml:11: found 'world' as what 'rank' tells of the team, expected 'rank'"},
      {"team = \"rank\" }", "team = \"rank\", type = \"i32\" }",
       "op.toml:11: found the unknown key 'type' in run-time value 'rank' with 'team', expected 'team'"},
      {"team = \"rank\" }", "team = \"rank\" }\nother = { team = \"rank\" }",
       "op.toml:12: found the team's rank as 'rank' and 'other', expected it once"},
      {"default = \"rows\"", "default = \"rank\"",
       "found the run-time value 'rank', which differs from rank to rank, in the default of 'stride' 'rank'"},
      {"shape = [\"world\", \"rows\"", "shape = [\"rank + 1\", \"rows\"",
       "found the run-time value 'rank', which differs from rank to rank, in the shape of 'y'"},
      {"output = true", "output = true, per_rank = true",
       "op.toml:15: found 'per_rank' on 'y', an output, expected it on inputs only"},
      {"per_rank = true", "fill = \"prepared\", per_rank = true",
       "op.toml:14: found 'per_rank' on 'x' with fill = \"prepared\", expected another fill"},
      {"args   = [\"x\"", "args   = [{ tma = \"x\", box = [8, 8] }",
       "op.toml:21: found a TMA argument over 'x' in the reference, expected \"x\", the address of all ranks' parts"},
      {"args   = [\"x\"", "args   = [{ team = true }, \"x\"",
       "op.toml:21: found 'team' in a pass of the reference, expected it in implementations alone"},
  };
  for (const TeamMistake& mistake : mistakes) {
    testing::Folder folder = team_folder();
    folder.op = testing::replaced(folder.op, mistake.from, mistake.to);
    check_refusal(folder, mistake.message);
  }
}

TEST_CASE("a mistake about a team in an implementation is named with its line") {
  const TeamMistake mistakes[] = {
      {"symmetric = true", "symmetric = true, zeroed = true",
       "fast.toml:11: found 'zeroed' and 'symmetric' on workspace 'gathered', expected one of them"},
      {", symmetric = true", "", "found a peers argument, expected a workspace with symmetric = true"},
      {"peers = \"gathered\"", "peers = \"staged\"",
       "fast.toml:17: found 'staged' as the workspace of a peers argument, expected 'gathered'"},
      {"{ peers = \"gathered\" }", "\"gathered\"",
       "fast.toml:17: found the symmetric workspace 'gathered' by name, expected { peers = \"gathered\" }"},
      {"{ team = true }, ", "",
       "fast.toml:13: found no argument { team = true }, though axis 'world' of op.toml is a team"},
      {"team = true", "team = false", "fast.toml:17: found team = false as an argument, expected team = true"},
      {"{ team = true }", "{ team = true, peers = \"gathered\" }",
       "fast.toml:17: found the unknown key 'team' in a peers argument, expected 'peers'"},
      {"tma = \"staged\"", "tma = \"gathered\"",
       "fast.toml:17: found no 'half' in a TMA argument over the symmetric workspace 'gathered', expected one"},
      {"tma = \"staged\"", "tma = \"gathered\", half = 2",
       "fast.toml:17: found half = 2 of a TMA argument, expected 0 or 1"},
      {"tma = \"staged\"", "tma = \"staged\", half = 1",
       "fast.toml:17: found 'half' of a TMA argument over workspace 'staged', expected it for symmetric workspaces"},
      {"tma = \"staged\", dtype = \"dtype\"", "tma = \"x\", half = 1",
       "fast.toml:17: found 'half' of a TMA argument over tensor 'x', expected it for symmetric workspaces alone"},
      {"tma = \"staged\", dtype = \"dtype\"", "tma = \"staged\"",
       "fast.toml:17: found no 'dtype' in a TMA argument over workspace 'staged', expected one"},
      {"dtype = \"dtype\", shape", "dtype = \"word\", shape",
       "fast.toml:17: found 'word' as the dtype of 'staged', expected 'dtype', or an element type such as 'f32'"},
      {"shape = [\"blocks\", \"64 / sizeof(dtype) * 2\"], ", "",
       "fast.toml:17: found no 'shape' in a TMA argument over workspace 'staged', expected one"},
      {"tma = \"staged\"", "tma = \"x\"",
       "fast.toml:17: found 'dtype' of a TMA argument over tensor 'x', expected its own"},
      {"blocks <= 16", "blocks > rank",
       "found the run-time value 'rank', which differs from rank to rank, in a constraint"},
      {"x = 16", "x = \"16 + rank\"",
       "found the run-time value 'rank', which differs from rank to rank, in an alignment"},
  };
  for (const TeamMistake& mistake : mistakes) {
    testing::Folder folder = team_folder();
    folder.implementation = testing::replaced(folder.implementation, mistake.from, mistake.to);
    check_refusal(folder, mistake.message);
  }
}

TEST_CASE("NCCL may exchange what an op of a team exchanges") {
  testing::Folder folder = team_folder();
  folder.implementation = R"toml(summary  = "NCCL"
library  = "nccl"
requires = 'dtype == "bf16"'
[constraints]
all = ["stride == rows"]
[collective]
kind   = "all_gather"
input  = "x"
output = "y"
count  = "rows * cols"
)toml";
  const Op op = folder.parse();
  const Implementation& nccl = op.implementations.front();
  CHECK(nccl.is_library());
  CHECK(nccl.is_collective());
  CHECK(nccl.collective.kind == CollectiveKind::all_gather);
  CHECK(op.tensors[static_cast<std::size_t>(nccl.collective.input.tensor)].name == "x");
  CHECK(op.tensors[static_cast<std::size_t>(nccl.collective.output.tensor)].name == "y");
  CHECK(nccl.collective.count.text() == "rows * cols");
  CHECK(to_string(nccl, nccl.default_config).empty());
  CHECK(parse_config(nccl, "") == Config{});
  CHECK(!parse_config(nccl, "blocks=8"));

  const TeamMistake mistakes[] = {
      {"\"nccl\"", "\"cublaslt\"",
       "found the library 'cublaslt' in an op with a team axis, expected 'nccl' or kernels"},
      {"\"nccl\"", "\"mpi\"", "found the library 'mpi', expected 'cublaslt' or 'nccl'"},
      {"[collective]", "[matmul]", "found the unknown key 'matmul'"},
      {"\"all_gather\"", "\"broadcast\"", "found 'broadcast'"},
      {"input  = \"x\"", "input  = \"y\"",
       "found 'y' as 'input' of [collective], expected an input that every launch gives"},
      {"output = \"y\"", "output = \"x\"",
       "found 'x' as 'output' of [collective], expected an output that every launch gives"},
      {"count  = \"rows * cols\"\n", "", "'count'"},
      {"count ", "first  = true\ncount ", "found 'first' of [collective] without a pass, expected passes"},
      {"rows * cols", "rows * rank", "'rank', which differs from rank to rank"},
  };
  for (const TeamMistake& mistake : mistakes) {
    testing::Folder wrong = folder;
    wrong.implementation = testing::replaced(folder.implementation, mistake.from, mistake.to);
    check_refusal(wrong, mistake.message);
  }
  testing::Folder typed = folder;
  typed.op = testing::replaced(folder.op, "\"world\", \"rows\", \"cols\"], dtype = \"dtype\"",
                               "\"world\", \"rows\", \"cols\"], dtype = \"f32\"");
  check_refusal(typed, "found 'x' and 'y' of [collective] with types of their own, expected one type for both");
  testing::Folder plain = testing::scale_folder();
  plain.implementation = folder.implementation;
  check_refusal(plain, "found the library 'nccl' in an op without a team axis, expected 'cublaslt' or kernels");
}

TEST_CASE("NCCL may exchange what passes wrote, or what they read") {
  testing::Folder after = team_folder();
  after.implementation = R"toml(summary  = "a product, then NCCL"
library  = "nccl"
[parameters]
blocks = [8, 16]
[default]
blocks = 8
[workspace]
staged = { bytes = "world * rows * cols * sizeof(dtype)" }
pushed = { bytes = "64", symmetric = true }
[[pass]]
kernel = "product<{dtype}>"
grid   = ["blocks"]
block  = [256]
args   = ["x", "staged", "rows"]
[collective]
kind   = "reduce_scatter"
input  = "staged"
output = "y"
count  = "rows * cols"
)toml";
  const Op op = after.parse();
  const Implementation& product = op.implementations.front();
  CHECK(product.is_library());
  CHECK(product.has_kernels());
  CHECK(product.source == "fast.cuh");
  CHECK(product.parameters.size() == 1);
  CHECK(product.collective.input.tensor == -1);
  CHECK(product.collective.input.workspace == 0);
  CHECK(op.tensors[static_cast<std::size_t>(product.collective.output.tensor)].name == "y");
  CHECK(product.collective.element.selection == 0);
  CHECK_FALSE(product.collective.first);

  testing::Folder before = after;
  before.op = testing::replaced(after.op, "[reference]\n",
                                "kept = { shape = [\"world\", \"rows\", \"cols\"], dtype = \"dtype\", output = true, "
                                "optional = true }\n[reference]\n");
  before.implementation =
      testing::replaced(after.implementation, "\"reduce_scatter\"\ninput  = \"staged\"\noutput = \"y\"",
                        "\"all_gather\"\nfirst  = true\ninput  = \"x\"\noutput = \"kept\"\notherwise = \"staged\"");
  const Op gathered = before.parse();
  const Collective& first = gathered.implementations.front().collective;
  CHECK(first.first);
  CHECK(first.input.workspace == -1);
  CHECK(gathered.tensors[static_cast<std::size_t>(first.output.tensor)].name == "kept");
  CHECK(first.output.workspace == 0);

  const auto refuses = [](testing::Folder folder, const TeamMistake& mistake) {
    folder.implementation = testing::replaced(folder.implementation, mistake.from, mistake.to);
    check_refusal(folder, mistake.message);
  };
  const TeamMistake mistakes[] = {
      {"input  = \"staged\"", "input  = \"stage\"",
       "found 'stage' as a tensor or workspace of [collective] (did you mean 'staged'?)"},
      {"input  = \"staged\"", "input  = \"pushed\"",
       "fast.toml:17: found the symmetric workspace 'pushed' as 'input' of [collective], expected a tensor"},
      {"output = \"y\"", "output = \"staged\"",
       "fast.toml:18: found workspaces alone in [collective], expected a tensor as 'input' or 'output'"},
      {"\"staged\"\noutput = \"y\"", "\"x\"\noutput = \"staged\"",
       "fast.toml:18: found a workspace as 'output' of a [collective] that runs after the passes, expected an output"},
      {"kind ", "first  = true\nkind ",
       "fast.toml:18: found a workspace as 'input' of a [collective] that runs before the passes, expected an input"},
      {"output = \"y\"", "output = \"y\"\notherwise = \"staged\"",
       "fast.toml:19: found 'otherwise' of [collective] beside an output that every launch has"},
      {"library  = \"nccl\"\n", "", "fast.toml:14: found the unknown key 'collective' in the file"},
      {"[collective]", "[matmul]", "found the unknown key 'matmul' in the file of a library with passes"},
      {"blocks = 8\n", "", "found no 'blocks' in [default]"},
  };
  for (const TeamMistake& mistake : mistakes) refuses(after, mistake);
  const TeamMistake mistakes_before[] = {
      {"otherwise = \"staged\"", "otherwise = \"pushed\"",
       "fast.toml:20: found the symmetric workspace 'pushed' as 'otherwise' of [collective]"},
      {"otherwise = \"staged\"\n", "",
       "found 'kept' as 'output' of [collective], expected an output that every launch"},
      {"first  = true\n", "", "found a workspace as 'output' of a [collective] that runs after the passes"},
  };
  for (const TeamMistake& mistake : mistakes_before) refuses(before, mistake);
}

TEST_CASE("an op of one GPU can say nothing of a team") {
  const testing::Folder plain = testing::scale_folder();
  testing::Folder folder = plain;
  folder.op = testing::replaced(plain.op, "dtype = \"dtype\" }", "dtype = \"dtype\", per_rank = true }");
  check_refusal(folder, "op.toml:15: found 'per_rank' on 'x', expected an axis with team = true in [axes]");
  folder = plain;
  folder.implementation = testing::replaced(plain.implementation, "zeroed = true", "symmetric = true");
  check_refusal(folder, "fast.toml:15: found 'symmetric' on workspace 'partial', expected an axis with team = true");
  for (const char* argument : {"{ team = true }", "{ peers = \"partial\" }"}) {
    folder = plain;
    folder.implementation = testing::replaced(plain.implementation, "\"rows\", \"factor\"", argument);
    check_refusal(folder, "argument, expected an axis with team = true in op.toml");
  }
}

TEST_CASE("what [prepare] writes is equal on all ranks") {
  testing::Folder folder = team_folder();
  folder.op = testing::replaced(folder.op, "[reference]\n", R"([prepare]
source = "reference.cuh"
cases = ["plain"]
[[prepare.pass]]
kernel = "prepare"
grid = [1]
block = [32]
args = ["n", "x", "seed"]
[reference]
)");
  folder.op = testing::replaced(folder.op, "[tensors]\n",
                                "[tensors]\nn = { shape = [\"world\"], dtype = \"i32\", fill = \"prepared\" }\n");
  check_refusal(folder,
                "op.toml:20: found 'x' with per_rank = true in a pass of [prepare], expected inputs that are equal");
  folder.op = testing::replaced(folder.op, "[\"n\", \"x\", \"seed\"]", "[\"n\", \"seed\"]");
  CHECK(testing::refusal_of(folder) == "accepted");
}

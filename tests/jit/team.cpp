// What an executable of a team op gives its kernels: the team, the peers' workspaces, the rank, and descriptors of workspaces.
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device.hpp"
#include "fake_cuda/module/tensor_map.hpp"
#include "jit/executable.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;

namespace {

const bool cannot_run = !has_nvrtc() || cuda::Driver::find() == nullptr;

constexpr const char* op_toml = R"toml([op]
summary  = "each rank's rows on every rank"
revision = 1
[axes]
rows  = { bucket = "pow2", max = 4096 }
world = { team = true, max = 8 }
[runtime]
rank = { team = "rank" }
[tensors]
x = { shape = ["rows"], dtype = "f32", per_rank = true }
y = { shape = ["world", "rows"], dtype = "f32", output = true }
[reference]
[[reference.pass]]
kernel = "reference"
grid   = ["rows"]
block  = [32]
args   = ["x", "y", "rank"]
)toml";

constexpr const char* push_toml = R"toml(summary = "pushes"
[workspace]
first  = { bytes = "rows * 4 + 4", symmetric = true }
own    = { bytes = 1000 }
second = { bytes = "rows * world", symmetric = true }
common = { bytes = "rows * 32", zeroed = true }
none   = { bytes = "rows - rows" }
[[pass]]
kernel = "push"
grid   = ["rank + 1"]
block  = [32]
args   = ["x", { peers = "second" }, { team = true }, "rank", { peers = "first" }, "own",
          { tma = "own", dtype = "f32", shape = [4, 32], box = [1, 32] },
          { tma = "common", dtype = "bf16", shape = ["rows / 8", 64], strides = [128, 1], box = [1, 32] },
          { tma = "none", dtype = "f32", shape = [4, 32], box = [1, 32] },
          { tma = "second", half = 1, dtype = "f32", shape = [4, 32], box = [1, 32] },
          { tma = "second", half = 0, dtype = "f32", shape = [4, 32], box = [1, 32] }]
)toml";

constexpr const char* push_cuh = R"(
struct peers { unsigned char* of[8]; };
struct team { void* control[8]; void* report; unsigned long long half_bytes, timeout_ns; int rank, world; unsigned tag, unused; };
struct alignas(64) map { unsigned long long words[16]; };
__global__ void push(const float* x, peers second, const __grid_constant__ team of, int rank, peers first, float* own,
                     const __grid_constant__ map a, const __grid_constant__ map b, const __grid_constant__ map c,
                     const __grid_constant__ map d, const __grid_constant__ map e) {
  *own = x[rank] + second.of[rank][0] + first.of[rank][1] + of.world + a.words[0] + b.words[1] + c.words[2] + d.words[3] + e.words[4];
}
)";

constexpr const char* reference_cuh =
    "__global__ void reference(const float* x, float* y, int rank) { y[rank] = *x; }\n";

team::TeamBinding binding_of(std::int32_t rank, std::int32_t world, std::int64_t half_bytes = 1 << 20) {
  team::TeamBinding binding;
  for (std::size_t i = 0; i < static_cast<std::size_t>(world); ++i) binding.memory[i] = 0x7000'0000 + 0x1000'0000 * i;
  binding.rank = rank;
  binding.world = world;
  binding.half_bytes = half_bytes;
  binding.timeout_ns = 5'000'000'000;
  binding.tag = 0xbeef;
  binding.report = 0x1234'5600;
  return binding;
}

struct Setup {
  cuda::Context context{0};
  cuda::Context::Scope scope{context};
  manifest::Op op;
  Problem problem;

  explicit Setup(const std::string& implementation = push_toml, const std::string& source = push_cuh)
      : op(manifest::parse_op("gather", "/ops/gather",
                              std::vector<manifest::SourceFile>{{"op.toml", op_toml},
                                                                {"push.toml", implementation},
                                                                {"push.cuh", source},
                                                                {"reference.cuh", reference_cuh}})) {
    problem.axes = {512, 4};
  }
  [[nodiscard]] std::vector<std::int64_t> frame(const manifest::Implementation* implementation) const {
    return manifest::Variant{implementation}.frame({op, context.info().facts}, problem);
  }
  [[nodiscard]] Executable executable(const team::TeamBinding* binding) const {
    const manifest::Implementation& push = op.implementations.front();
    const auto at = frame(&push);
    const Cubin cubin = compile(specialise(op, push, at, default_arch(context.info().facts.sm())));
    return {op, push, at, cubin, binding};
  }
  [[nodiscard]] Arguments arguments() const {
    Arguments arguments;
    for (std::uintptr_t each = 0; each < 2; ++each)
      arguments.tensors[each] = reinterpret_cast<const void*>(4096 * (each + 1));
    return arguments;
  }
  [[nodiscard]] std::string refusal(const team::TeamBinding* binding) const {
    const Error error = thrown_by([&] { static_cast<void>(executable(binding)); });
    CHECK(error.kind() == ErrorKind::bad_input);
    return error.what();
  }
};

template <typename Number>
Number number_at(const void* address) {
  Number number;
  std::memcpy(&number, address, sizeof number);
  return number;
}

}  // namespace

TEST_CASE("a kernel of a team op is given the team and its peers' workspaces, in place after moves" *
          doctest::skip(cannot_run)) {
  const Setup setup;
  const team::TeamBinding binding = binding_of(2, 4);
  Executable made = setup.executable(&binding);
  CallFrame frame;
  PassCall call;
  made.link(0, frame, call);
  Executable executable = std::move(made);
  REQUIRE(executable.fill(frame, setup.problem, setup.arguments()));
  executable.arrange(0, {frame, setup.arguments(), nullptr, {1 << 20, 2 << 20}, 0}, call);

  const auto given = number_at<team::TeamArgument>(call.parameters[2]);
  CHECK(given.control == std::array<std::uint64_t, 8>{0x7000'0000, 0x8000'0000, 0x9000'0000, 0xa000'0000, 0, 0, 0, 0});
  CHECK(given.report == binding.report);
  CHECK(given.half_bytes == 1 << 20);
  CHECK(given.timeout_ns == binding.timeout_ns);
  CHECK(given.rank == 2);
  CHECK(given.world == 4);
  CHECK(given.tag == 0xbeef);
  CHECK(given.unused == 0);
  const auto first = number_at<team::PeersArgument>(call.parameters[4]);
  const auto second = number_at<team::PeersArgument>(call.parameters[1]);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(first.of[rank] == binding.memory[rank] + 65536);
    CHECK(second.of[rank] == binding.memory[rank] + 65536 + 2304);  // 512 * 4 + 4, rounded up
  }
  CHECK(first.of[4] == 0);
  CHECK(second.of[7] == 0);

  // A thread's own call points at the same structures.
  ThreadCall* const kept = executable.thread_call();
  REQUIRE(kept != nullptr);
  CHECK(kept->passes()[0].parameters[2] == call.parameters[2]);
  CHECK(kept->passes()[0].parameters[1] == call.parameters[1]);
}

TEST_CASE("symmetric workspaces take bytes of the team's memory alone" * doctest::skip(cannot_run)) {
  const Setup setup;
  const team::TeamBinding binding = binding_of(0, 4);
  const Executable executable = setup.executable(&binding);
  CHECK(executable.symmetric_workspace_bytes() == 2304 + 2048);
  CHECK(executable.workspace_bytes() == 1024);
  CHECK(executable.zeroed_bytes() == 16384);
}

TEST_CASE("a team op without a team, with another's size or with too little memory is refused with what it needs" *
          doctest::skip(cannot_run)) {
  const Setup setup;
  CHECK(setup.refusal(nullptr) ==
        "op 'gather' is computed by a team of ranks, and none was given; make the engine with a team");
  const team::TeamBinding pair = binding_of(0, 2);
  CHECK(setup.refusal(&pair) ==
        "op 'gather': the problem is for 4 ranks, and the team has 2; give the team's number of "
        "ranks as the size of the team axis");
  const team::TeamBinding small = binding_of(0, 4, 4351);
  CHECK(setup.refusal(&small) ==
        "op 'gather' needs 74240 bytes of team memory for this problem, two halves of 4352 bytes among them, and the "
        "team's halves have 4351; make the team with 74240 bytes or more");
  CHECK(team::half_bytes(74240) == 4352);
  const team::TeamBinding enough = binding_of(0, 4, 4352);
  CHECK_NOTHROW(static_cast<void>(setup.executable(&enough)));
}

TEST_CASE("the rank is a constant of the plan, and a launch that gives another is refused" *
          doctest::skip(cannot_run)) {
  const Setup setup;
  const team::TeamBinding binding = binding_of(3, 4);
  const Executable executable = setup.executable(&binding);
  Arguments arguments = setup.arguments();
  CallFrame frame;
  PassCall call;
  executable.link(0, frame, call);
  CHECK(call.config.gridDimX == 4);  // known without a launch
  REQUIRE(executable.fill(frame, setup.problem, arguments));
  CHECK(number_at<std::int32_t>(call.parameters[3]) == 3);
  const RuntimeId rank{0, RuntimeId::Kind::integer};
  arguments.set(rank, 3);
  CHECK(executable.fill(frame, setup.problem, arguments));
  CHECK(executable.explain_frame(setup.problem, arguments).empty());
  arguments.set(rank, 1);
  CHECK_FALSE(executable.fill(frame, setup.problem, arguments));
  CHECK(executable.explain_frame(setup.problem, arguments) ==
        "gather: run-time value 'rank' is 1, and the team's rank is 3; leave it out of the call's Arguments");
}

TEST_CASE("the reference of a team op has no team, and is told each rank" * doctest::skip(cannot_run)) {
  const Setup setup;
  const auto at = setup.frame(nullptr);
  const Cubin cubin = compile(specialise_reference(setup.op, at, default_arch(setup.context.info().facts.sm())));
  const Executable reference(setup.op, at, cubin);
  Arguments arguments = setup.arguments();
  CallFrame frame;
  CHECK_FALSE(reference.fill(frame, setup.problem, arguments));
  for (const std::int64_t rank : {0, 3}) {
    arguments.set(RuntimeId{0, RuntimeId::Kind::integer}, rank);
    CHECK(reference.fill(frame, setup.problem, arguments));
    CHECK(frame.slots[reference.layout().values[0]] == rank);
  }
}

TEST_CASE("a descriptor shows a workspace where the launch has it, and is zeros for one of no bytes" *
          doctest::skip(cannot_run)) {
  const Setup setup;
  const team::TeamBinding binding = binding_of(0, 4);
  const Executable executable = setup.executable(&binding);
  const Arguments arguments = setup.arguments();
  CallFrame frame;
  PassCall call;
  executable.link(0, frame, call);
  REQUIRE(executable.fill(frame, setup.problem, arguments));
  CHECK(executable.fits(frame, arguments));
  const auto shown = [&](std::size_t parameter) { return number_at<fake_cuda::TensorMap>(call.parameters[parameter]); };
  for (const CUdeviceptr own : {CUdeviceptr{1} << 20, CUdeviceptr{3} << 20, CUdeviceptr{1} << 20}) {
    executable.arrange(0, {frame, arguments, nullptr, {own, 2 << 20}, 0}, call);
    CHECK(number_at<CUdeviceptr>(call.parameters[5]) == own);
    CHECK(shown(6).address == own);
    CHECK(shown(6).shape[0] == 32);
    CHECK(shown(6).shape[1] == 4);
    CHECK(shown(6).stride_bytes[0] == 128);  // dense
    CHECK(shown(7).address == 2 << 20);
    CHECK(shown(7).shape[1] == 64);  // 512 / 8
    CHECK(shown(7).stride_bytes[0] == 256);
    const CUtensorMap zeros{};
    CHECK(std::memcmp(call.parameters[8], &zeros, sizeof zeros) == 0);
  }
  // A launch without workspaces, as one that is only checked.
  executable.arrange(0, {frame, arguments, nullptr, 0, 0}, call);
  const CUtensorMap zeros{};
  CHECK(std::memcmp(call.parameters[6], &zeros, sizeof zeros) == 0);
}

TEST_CASE("a descriptor shows this rank's symmetric workspace in the half that it names" * doctest::skip(cannot_run)) {
  const Setup setup;
  const team::TeamBinding binding = binding_of(2, 4);
  const Executable executable = setup.executable(&binding);
  const Arguments arguments = setup.arguments();
  CallFrame frame;
  PassCall call;
  executable.link(0, frame, call);
  REQUIRE(executable.fill(frame, setup.problem, arguments));
  executable.arrange(0, {frame, arguments, nullptr, {1 << 20, 2 << 20}, 0}, call);
  const std::uint64_t first = 0x9000'0000 + 65536 + 2304;
  for (const std::size_t half : {0U, 1U}) {
    const auto shown = number_at<fake_cuda::TensorMap>(call.parameters[10 - half]);
    CHECK(shown.address == first + half * (1 << 20));
    CHECK(shown.shape[0] == 32);
    CHECK(shown.shape[1] == 4);
  }
}

TEST_CASE("a view that reaches past its workspace is refused by name" * doctest::skip(cannot_run)) {
  std::string implementation = push_toml;
  const std::string shape = "shape = [4, 32], box = [1, 32] },\n          { tma = \"common\"";
  implementation.replace(implementation.find(shape), 16, "shape = [8, 32],");
  const Setup setup(implementation);
  const team::TeamBinding binding = binding_of(0, 4);
  const Executable executable = setup.executable(&binding);
  const Arguments arguments = setup.arguments();
  CallFrame frame;
  PassCall call;
  executable.link(0, frame, call);
  REQUIRE(executable.fill(frame, setup.problem, arguments));
  CHECK_FALSE(executable.fits(frame, arguments));
  const Error error = thrown_by([&] {
    executable.arrange(0, {frame, arguments, nullptr, {1 << 20, 2 << 20}, 0}, call);
  });
  CHECK(error.kind() == ErrorKind::bad_input);
  CHECK(holds(error.what(),
              "the TMA descriptor of 'own': its view reaches 256 elements at these sizes, and 'own' has 250"));
}

TEST_CASE("a kernel that takes other structures than the team's is refused" * doctest::skip(cannot_run)) {
  const team::TeamBinding binding = binding_of(0, 4);
  for (const auto& [from, to, message] :
       {std::array<const char*, 3>{"unsigned tag, unused;", "unsigned tag, unused, more[2];",
                                   "takes 112 bytes as argument 3, and 'team = true' has 104"},
        std::array<const char*, 3>{"unsigned char* of[8];", "unsigned char* of[9];",
                                   "takes 72 bytes as argument 2, and 'peers = second' has 64"},
        std::array<const char*, 3>{"unsigned long long words[16];", "unsigned long long words[24];",
                                   "takes 192 bytes as argument 7, and 'tma = own' has 128"}}) {
    std::string source = push_cuh;
    source.replace(source.find(from), std::strlen(from), to);
    const Setup setup(push_toml, source);
    const Error error = thrown_by([&] { static_cast<void>(setup.executable(&binding)); });
    CHECK(error.kind() == ErrorKind::bad_manifest);
    CHECK(holds(error.what(), message));
  }
}

// Implementations by NCCL: what each collective computes, on ranks in processes of their own. tests/fake_nccl moves the data.
#include <array>
#include <string>

#include "cuda/device.hpp"
#include "cuda/nccl_api.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "sources.hpp"
#include "team/ranks.hpp"
#include "team/state.hpp"

using namespace kiln;
using namespace kiln::jit;

namespace {

const bool has_no_nccl = cuda::Driver::find() == nullptr || cuda::Nccl::find() == nullptr;

constexpr std::int64_t exchanged_rows = 5, exchanged_cols = 8, exchanged = exchanged_rows * exchanged_cols;

const manifest::Op& team_op(const std::string& name) {
  static const std::vector<manifest::Op> ops = manifest::load_ops({});
  return *std::ranges::find(ops, name, &manifest::Op::name);
}

std::vector<std::int64_t> frame_of(const manifest::Op& op, int world, const manifest::DeviceFacts& facts) {
  const std::string ranks = std::to_string(world);
  const std::array settings = {manifest::Setting{"rows", "5"}, manifest::Setting{"cols", "8"},
                               manifest::Setting{"world", ranks}, manifest::Setting{"dtype", "f32"},
                               manifest::Setting{"ranks", "alike"}};
  return manifest::Variant{op.find("nccl")}.frame({op, facts}, manifest::make_problem(op, settings));
}

/// Element i of what a rank gives, an integer.
float given(int rank, std::int64_t i) { return static_cast<float>((rank + 1) * (i % 17 - 8)); }

/// Launches NCCL's implementation of the op on this rank. x has `parts` parts, y as many as `gathered`.
std::vector<float> launched(team::TeamState& state, const manifest::Op& op, std::int64_t parts, std::int64_t gathered) {
  team::Member& member = *state.member;
  REQUIRE(member.open_nccl());
  const cuda::Context::Scope scope(*state.context);
  const auto frame = frame_of(op, member.world(), state.context->info().facts);
  const team::TeamBinding binding = member.binding(1);
  const Executable executable(op, *op.find("nccl"), frame, Cubin{}, &binding);
  CHECK(executable.is_library());
  std::vector<float> x(static_cast<std::size_t>(parts * exchanged)), y(static_cast<std::size_t>(gathered * exchanged));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = given(member.rank(), static_cast<std::int64_t>(i));
  const auto bytes = [](const std::vector<float>& of) { return static_cast<std::int64_t>(of.size() * sizeof(float)); };
  const cuda::Buffer source(bytes(x)), destination(bytes(y));
  const cuda::Stream stream;
  source.copy_from_host(x.data(), bytes(x), stream.handle());
  Arguments arguments;
  for (std::size_t i = 0; i < op.tensors.size(); ++i)
    if (op.tensors[i].name == "x" || op.tensors[i].name == "y")
      arguments.tensors[i] = reinterpret_cast<void*>((op.tensors[i].output ? destination : source).pointer());
  Problem problem;
  for (std::size_t i = 0; i < op.axes.size(); ++i) problem.axes[i] = frame[i];
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    problem.selections[i] = static_cast<std::uint8_t>(frame[static_cast<std::size_t>(op.first_static()) + i]);
  CallFrame call;
  REQUIRE(executable.fill(call, problem, arguments));
  REQUIRE(executable.admits(call, arguments) == Admission::admitted);
  REQUIRE(executable.launch(call, arguments, stream.handle(), WorkspaceBlocks{}) == CUDA_SUCCESS);
  destination.copy_to_host(y.data(), bytes(y), stream.handle());
  state.member->close();
  CHECK(executable.launch(call, arguments, stream.handle(), WorkspaceBlocks{}) != CUDA_SUCCESS);
  return y;
}

/// What three ranks got: each "right", or the first element that differs from `wanted(rank, i)`.
template <typename Wanted>
void check_ranks(const char* name, std::int64_t parts, std::int64_t gathered, const Wanted& wanted) {
  kiln::test::Ranks ranks;
  ranks.begin_all(3, [&](const team::Membership& of) {
    team::TeamState state(of, TeamOptions{0, 0, kiln::test::ample}, std::nullopt);
    state.share_memory(std::int64_t{1} << 20);
    const std::vector<float> got = launched(state, team_op(name), parts, gathered);
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != wanted(of.rank, static_cast<std::int64_t>(i))) return fmt::format("element {} is {}", i, got[i]);
    return std::string("right");
  });
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(ranks.outcome(rank) == "right");
}

float sum_of_three(std::int64_t i) { return given(0, i) + given(1, i) + given(2, i); }

}  // namespace

TEST_CASE("NCCL gathers, adds up and scatters as the ops say" * doctest::skip(has_no_nccl)) {
  check_ranks("all_gather", 1, 3,
              [](int, std::int64_t i) { return given(static_cast<int>(i / exchanged), i % exchanged); });
  check_ranks("all_reduce", 1, 1, [](int, std::int64_t i) { return sum_of_three(i); });
  check_ranks("reduce_scatter", 3, 1, [](int rank, std::int64_t i) { return sum_of_three(rank * exchanged + i); });
}

// In a process of its own: none could be forked for the ranks of another test once this one had a context.
TEST_CASE("NCCL's implementation is refused for a team without its communicator" * doctest::skip(has_no_nccl)) {
  kiln::test::Ranks alone;
  alone.begin([] {
    const cuda::Context context(0);
    const cuda::Context::Scope scope(context);
    const manifest::Op& op = team_op("all_reduce");
    team::TeamBinding binding;
    binding.world = 2;
    const auto frame = frame_of(op, 2, context.info().facts);
    try {
      const Executable executable(op, *op.find("nccl"), frame, Cubin{}, &binding);
    } catch (const Error& error) {
      return std::string(error.kind() == ErrorKind::no_nccl ? "no NCCL" : error.what());
    }
    return std::string("made");
  });
  CHECK(alone.outcome(0) == "no NCCL");
}

TEST_CASE("a record of NCCL's is stale when NCCL is asked for something else") {
  const manifest::Op& op = team_op("all_reduce");
  const auto facts = *manifest::DeviceFacts::from_device_class("sm_90/mp132/l2_62914560/smem_232448/bus_6016");
  const auto digest = [&](const manifest::Op& of) {
    return source_digest(specialise(of, *of.find("nccl"), frame_of(of, 2, facts), ""));
  };
  manifest::Op other = op;
  for (manifest::Implementation& each : other.implementations)
    if (each.is_collective()) each.collective.kind = manifest::CollectiveKind::all_gather;
  CHECK(digest(other) != digest(op));
}

// Products beside NCCL: which op's kernels run before its collective and which after it, and in which memory. tests/fake_nccl moves the data.
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "cuda/device.hpp"
#include "cuda/nccl_api.hpp"
#include "fake_cuda/fixture.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "sources.hpp"
#include "team/ranks.hpp"
#include "team/state.hpp"

using namespace kiln;
using namespace kiln::jit;

namespace {

const bool cannot_run =
    !kiln::jit::test::has_nvrtc() || cuda::Driver::find() == nullptr || cuda::Nccl::find() == nullptr;

constexpr std::int64_t rows = 5, n = 24, k = 16, world = 3;

const manifest::Op& product_op(const std::string& name) {
  static const std::vector<manifest::Op> ops = manifest::load_ops({});
  return *std::ranges::find(ops, name, &manifest::Op::name);
}

Problem problem_of(const manifest::Op& op, std::int64_t ranks = world) {
  const std::array settings = {manifest::Setting{"rows", std::to_string(rows)},
                               manifest::Setting{"n", std::to_string(n)},
                               manifest::Setting{"k", std::to_string(k)},
                               manifest::Setting{"world", std::to_string(ranks)},
                               manifest::Setting{"dtype", "bf16"},
                               manifest::Setting{"ranks", "alike"}};
  return manifest::make_problem(op, settings);
}

/// Small integers, so that products, their sums and roundings are exact.
float given(std::int64_t rank, std::int64_t salt, std::int64_t i) {
  return static_cast<float>((i * 7 + rank * 3 + salt) % 4 - 1);
}
std::uint16_t bf16_of(float value) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16); }
float float_of(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

using Values = std::vector<float>;

Values drawn(std::int64_t rank, std::int64_t salt, std::int64_t elements) {
  Values values(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) values[static_cast<std::size_t>(i)] = given(rank, salt, i);
  return values;
}

/// Element (row, column) of x w^T, where x and w are those of `of_x` and `of_w`.
float product(std::int64_t of_x, std::int64_t of_w, std::int64_t row, std::int64_t column) {
  float sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += given(of_x, 0, row * k + i) * given(of_w, 1, column * k + i);
  return sum;
}

class Memory {
 public:
  explicit Memory(const Values& values) : elements_(values.size()), buffer_(bytes()) {
    std::vector<std::uint16_t> bits;
    for (const float each : values) bits.push_back(bf16_of(each));
    buffer_.copy_from_host(bits.data(), bytes(), stream_.handle());
    stream_.synchronize();
  }
  [[nodiscard]] Values values() const {
    std::vector<std::uint16_t> bits(elements_);
    buffer_.copy_to_host(bits.data(), bytes(), stream_.handle());
    Values values;
    for (const std::uint16_t each : bits) values.push_back(float_of(each));
    return values;
  }
  [[nodiscard]] void* address() const { return reinterpret_cast<void*>(buffer_.pointer()); }

 private:
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(2 * elements_); }
  std::size_t elements_;
  cuda::Stream stream_;
  cuda::Buffer buffer_;
};

struct Sizes {
  std::int64_t x, y;  // elements of a rank
};

/// Launches the op's product with NCCL on this rank twice, into NaN: by a frame of its own and by the thread's. "right", or what was wrong.
template <typename Wanted>
std::string outcome(team::TeamState& state, const manifest::Op& op, const Sizes& sizes, bool keeps_gathered,
                    const Wanted& wanted) {
  team::Member& member = *state.member;
  if (!member.open_nccl()) return member.why_no_nccl();
  const cuda::Context::Scope scope(*state.context);
  const manifest::Implementation& nccl = *op.find("nccl_mma");
  const Problem problem = problem_of(op);
  const auto frame = manifest::default_of(nccl).frame({op, state.context->info().facts}, problem);
  const Cubin cubin = compile(specialise(op, nccl, frame, default_arch(state.context->info().facts.sm())));
  const team::TeamBinding binding = member.binding(1);
  const Executable executable(op, nccl, frame, cubin, &binding);
  if (!executable.is_library() || !executable.needs_workspace()) return "no library, or no workspace";
  const Memory x(drawn(member.rank(), 0, sizes.x)), w(drawn(member.rank(), 1, n * k));
  const cuda::Buffer workspace(executable.workspace_bytes());
  const Memory gathered(Values(static_cast<std::size_t>(world * rows * k), NAN));
  for (const bool by_thread : {false, true}) {
    const Memory y(Values(static_cast<std::size_t>(sizes.y), NAN));
    Arguments arguments;
    for (std::size_t i = 0; i < op.tensors.size(); ++i) {
      const std::string& name = op.tensors[i].name;
      const Memory* const memory = name == "x"                            ? &x
                                   : name == "w"                          ? &w
                                   : name == "y"                          ? &y
                                   : name == "gathered" && keeps_gathered ? &gathered
                                                                          : nullptr;
      if (memory != nullptr) arguments.tensors[i] = memory->address();
    }
    CallFrame own;
    ThreadCall* const kept = executable.thread_call();
    CallFrame& call = by_thread ? kept->frame : own;
    const cuda::Stream stream;
    if (!executable.fill(call, problem, arguments) || executable.admits(call, arguments) != Admission::admitted)
      return "not admitted";
    const CUresult result = by_thread ? executable.launch(*kept, arguments, stream.handle(), workspace.pointer(), 0)
                                      : executable.launch(call, arguments, stream.handle(), workspace.pointer());
    if (result != CUDA_SUCCESS) return fmt::format("result {}", static_cast<int>(result));
    stream.synchronize();
    const Values got = y.values();
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != wanted(member.rank(), static_cast<std::int64_t>(i)))
        return fmt::format("element {} is {}, not {}", i, got[i], wanted(member.rank(), static_cast<std::int64_t>(i)));
    const Values kept_rows = gathered.values();
    for (std::size_t i = 0; i < kept_rows.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (keeps_gathered ? kept_rows[i] != given(at / (rows * k), 0, at % (rows * k)) : !std::isnan(kept_rows[i]))
        return fmt::format("gathered element {} is {}", i, kept_rows[i]);
    }
  }
  return "right";
}

template <typename Wanted>
void check_ranks(const char* name, const Sizes& sizes, bool keeps_gathered, const Wanted& wanted) {
  kiln::test::Ranks ranks;
  ranks.begin_all(world, [&](const team::Membership& of) {
    team::TeamState state(of, TeamOptions{0, 0, kiln::test::ample}, std::nullopt);
    state.share_memory(std::int64_t{1} << 20);
    const std::string said = outcome(state, product_op(name), sizes, keeps_gathered, wanted);
    state.member->close();
    return said;
  });
  for (std::size_t rank = 0; rank < world; ++rank) CHECK(ranks.outcome(rank) == "right");
}

}  // namespace

TEST_CASE("NCCL adds up and scatters the products that a pass wrote" * doctest::skip(cannot_run)) {
  const auto sum = [](std::int64_t row, std::int64_t column) {
    float total = 0;
    for (std::int64_t from = 0; from < world; ++from) total += product(from, from, row, column);
    return total;
  };
  check_ranks("gemm_all_reduce", {rows * k, rows * n}, false, [&](int, std::int64_t i) { return sum(i / n, i % n); });
  check_ranks("gemm_reduce_scatter", {world * rows * k, rows * n}, false,
              [&](int rank, std::int64_t i) { return sum(rank * rows + i / n, i % n); });
}

TEST_CASE("a pass multiplies the rows that NCCL gathered, in the launch's tensor or in a workspace" *
          doctest::skip(cannot_run)) {
  for (const bool keeps_gathered : {false, true})
    check_ranks("all_gather_gemm", {rows * k, world * rows * n}, keeps_gathered, [](int rank, std::int64_t i) {
      const std::int64_t row = i / n;
      return product(row / rows, rank, row % rows, i % n);
    });
}

namespace {

/// How a launch by `executable` ends, by a frame of its own or by the thread's, and how many collectives it enqueued.
std::string refusal_of(const Executable& executable, const Problem& problem, const Arguments& arguments,
                       CUdeviceptr workspace, bool by_thread) {
  CallFrame own;
  ThreadCall* const kept = executable.thread_call();
  CallFrame& call = by_thread ? kept->frame : own;
  const cuda::Stream stream;
  if (!executable.fill(call, problem, arguments) || executable.admits(call, arguments) != Admission::admitted)
    return "not admitted";
  const std::int64_t before = fake_cuda_tests::query("launches vendor_collective");
  std::string said;
  try {
    const CUresult result = by_thread ? executable.launch(*kept, arguments, stream.handle(), workspace, 0)
                                      : executable.launch(call, arguments, stream.handle(), workspace);
    said = result == CUDA_ERROR_NOT_SUPPORTED ? "not supported" : fmt::format("result {}", static_cast<int>(result));
  } catch (const Error& error) {
    said = to_string(error.kind());
  }
  stream.synchronize();
  return fmt::format("{}, {} collectives", said, fake_cuda_tests::query("launches vendor_collective") - before);
}

/// all_gather_gemm on one rank, whose pass behind NCCL's collective has this many blocks.
std::string refusals_of(const char* blocks, bool is_cooperative) {
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  manifest::Op op = product_op("all_gather_gemm");
  manifest::Implementation& nccl =
      *std::ranges::find(op.implementations, std::string("nccl_mma"), &manifest::Implementation::name);
  manifest::Symbols axes;
  for (const manifest::Axis& axis : op.axes) axes.add(axis.name);
  nccl.passes.front().grid[0] = manifest::Expression::parse(blocks, axes);
  nccl.passes.front().cooperative = is_cooperative;
  const Problem problem = problem_of(op, 1);
  const auto frame = manifest::default_of(nccl).frame({op, context.info().facts}, problem);
  const Cubin cubin = compile(specialise(op, nccl, frame, default_arch(context.info().facts.sm())));
  const team::NcclCommunicator communicator(team::NcclCommunicator::unique_id(), 0, 1, context,
                                            {kiln::test::ample, [] { return false; }});
  team::TeamBinding binding;
  binding.world = 1;
  binding.nccl = &communicator;
  const Executable executable(op, nccl, frame, cubin, &binding);
  const Memory x(drawn(0, 0, rows * k)), w(drawn(0, 1, n * k)), y(Values(rows * n, NAN));
  const cuda::Buffer workspace(executable.workspace_bytes());
  Arguments arguments;
  for (std::size_t i = 0; i < op.tensors.size(); ++i)
    for (const auto& [name, memory] : {std::pair("x", &x), {"w", &w}, {"y", &y}})
      if (op.tensors[i].name == name) arguments.tensors[i] = memory->address();
  return refusal_of(executable, problem, arguments, workspace.pointer(), false) + "; " +
         refusal_of(executable, problem, arguments, workspace.pointer(), true);
}

}  // namespace

TEST_CASE("a pass behind NCCL's collective that cannot be launched is refused before the collective is enqueued" *
          doctest::skip(cannot_run)) {
  kiln::test::Ranks alone;
  alone.begin([] { return refusals_of("rows", false); });
  alone.begin([] { return refusals_of("rows - 5", false); });
  alone.begin([] { return refusals_of("rows * 1000000", true); });
  CHECK(alone.outcome(0) == "result 0, 1 collectives; result 0, 1 collectives");
  CHECK(alone.outcome(1) == "bad_input, 0 collectives; bad_input, 0 collectives");
  CHECK(alone.outcome(2) == "not supported, 0 collectives; not supported, 0 collectives");
}

TEST_CASE("a product with NCCL is refused where its workspace is too small for the collective" *
          doctest::skip(cannot_run)) {
  kiln::test::Ranks alone;
  alone.begin([] {
    const cuda::Context context(0);
    const cuda::Context::Scope scope(context);
    manifest::Op op = product_op("gemm_reduce_scatter");
    manifest::Implementation& nccl =
        *std::ranges::find(op.implementations, std::string("nccl_mma"), &manifest::Implementation::name);
    nccl.workspaces.front().bytes = manifest::Expression::constant(rows * n * 2 - 2);
    const auto frame = manifest::default_of(nccl).frame({op, context.info().facts}, problem_of(op, 1));
    const Cubin cubin = compile(specialise(op, nccl, frame, default_arch(context.info().facts.sm())));
    const team::NcclCommunicator communicator(team::NcclCommunicator::unique_id(), 0, 1, context,
                                              {kiln::test::ample, [] { return false; }});
    team::TeamBinding binding;
    binding.world = 1;
    binding.nccl = &communicator;
    try {
      const Executable executable(op, nccl, frame, cubin, &binding);
    } catch (const Error& error) {
      return fmt::format("{} {}", error.kind() == ErrorKind::bad_manifest, error.what());
    }
    return std::string("made");
  });
  const std::string said = alone.outcome(0);
  CHECK_MESSAGE(said.starts_with("true "), said);
  CHECK_MESSAGE(said.find("workspace products has 238 bytes, and [collective] needs 240 at count = rows * n") !=
                    std::string::npos,
                said);
}

TEST_CASE(
    "a record of a product with NCCL is stale when the kernel or the collective is another, its code only by the kernel") {
  const manifest::Op& op = product_op("gemm_all_reduce");
  const auto facts = *manifest::DeviceFacts::from_device_class("sm_90/mp132/l2_62914560/smem_232448/bus_6016");
  const auto specialised = [&](const manifest::Op& of) {
    const manifest::Implementation& nccl = *of.find("nccl_mma");
    return specialise(of, nccl, manifest::default_of(nccl).frame({of, facts}, problem_of(of)), "");
  };
  manifest::Op collective = op, kernel = op;
  for (manifest::Implementation& each : collective.implementations)
    each.collective.kind = manifest::CollectiveKind::reduce_scatter;
  for (manifest::Implementation& each : kernel.implementations)
    if (each.name == "nccl_mma") each.default_config.front() = 32;
  const auto present = specialised(op);
  CHECK(source_digest(specialised(collective)) != source_digest(present));
  CHECK(code_digest(specialised(collective)) == code_digest(present));
  CHECK(source_digest(specialised(kernel)) != source_digest(present));
  CHECK(code_digest(specialised(kernel)) != code_digest(present));
  CHECK(code_digest(present) != source_digest(present));
}

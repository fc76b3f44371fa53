#include "tune/verification_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>

#include "cuda/gate.hpp"
#include "kiln/error.hpp"
#include "tune/internal_kernels.hpp"
#include "tune/verification_tensors.hpp"

namespace kiln::tune {
namespace {

/// Layout of compare_result in templates/internal/compare.cuh.
struct CompareResult {
  double wanted_squares;
  double error_squares;
  double largest_error;
  std::uint64_t mismatches;
  std::uint64_t unwritten;
  std::uint64_t counted;
  std::uint64_t first_mismatch;
};
static_assert(sizeof(CompareResult) == 56);
constexpr std::size_t squares_kernel = 0, outputs_kernel = 1, mark_kernel = 2;  // of compare_kernels()

void synchronize(CUstream stream) {
  cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

std::string position(const TensorExtent& extent, std::uint64_t index) {
  std::vector<std::uint64_t> coordinates(extent.shape.size());
  for (std::size_t i = extent.shape.size(); i-- > 0;) {
    coordinates[i] = index % static_cast<std::uint64_t>(extent.shape[i]);
    index /= static_cast<std::uint64_t>(extent.shape[i]);
  }
  return fmt::format("{}", fmt::join(coordinates, ","));
}

}  // namespace

struct VerificationCase::State {
  VerificationTensors tensors;
  std::map<manifest::DType, jit::Module> compare;
  std::unique_ptr<jit::Executable> reference;
  cuda::Buffer result{static_cast<std::int64_t>(sizeof(CompareResult))};
  cuda::Gate gate;  // holds launches back until all are enqueued, so that they can overtake each other

  explicit State(const manifest::Site& site) : tensors(site) {}

  void load(const std::string& arch, answer::Cubins& cubins) {
    const manifest::Op& op = tensors.op;
    const auto frame = tensors.frame();
    tensors.load(arch, cubins);
    for (const manifest::Tensor& tensor : op.tensors) {
      if (!tensor.output || !manifest::Op::takes_part(tensor, frame)) continue;
      const manifest::DType type = op.dtype_of(tensor, frame);
      if (compare.contains(type)) continue;
      const jit::Cubin cubin = cubins.get_and_keep(compare_kernels(type, arch)).cubin;
      compare.try_emplace(type, cubin.image, cubin.lowered_names);
    }
    const answer::KeyedCubin cubin = cubins.get_and_keep(jit::specialise_reference(op, frame, arch));
    reference = std::make_unique<jit::Executable>(op, frame, cubin.cubin);
  }

  /// Elements that the reference leaves unwritten are told by their marks. Those of an initialised output hold values
  /// instead.
  void mark_unwritten(CUstream stream) {
    for (std::size_t i = 0; i < tensors.tensors.size(); ++i) {
      if (!tensors.op.tensors[i].output || !tensors.takes_part(i) || tensors.is_initialised(i)) continue;
      const VerificationTensors::Tensor& state = tensors.tensors[i];
      CUdeviceptr wanted = state.wanted.pointer();
      long long count = state.extent.elements;
      std::array<void*, 2> parameters = {&wanted, &count};
      launch_internal(compare.at(state.extent.type).function(mark_kernel), count, parameters.data(), stream);
    }
  }

  [[nodiscard]] bool is_sampled() const {
    return tensors.op.reference_sample && tensors.op.reference_sample->evaluate(tensors.frame()).truth();
  }

  void run_reference(CUstream stream) {
    mark_unwritten(stream);
    jit::CallFrame frame;
    const Arguments& arguments = tensors.reference_arguments;
    if (!reference->fill(frame, tensors.problem, arguments))
      throw Error(ErrorKind::bad_input, reference->explain_frame(tensors.problem, arguments));
    cuda::check(reference->launch(frame, arguments, stream, 0), "launching the reference");
    synchronize(stream);
  }

  Check check_output(std::size_t index, CUstream stream) {
    const VerificationTensors::Tensor& state = tensors.tensors[index];
    const cuda::Driver& driver = cuda::Driver::get();
    std::array<long long, 4> shape{1, 1, 1, 1}, strides{0, 0, 0, 0};
    const std::size_t rank = state.extent.shape.size();
    for (std::size_t i = 0; i < rank; ++i) {
      shape[4 - rank + i] = state.extent.shape[i];
      strides[4 - rank + i] = state.extent.strides[i];
    }
    manifest::Tolerance tolerance = tensors.op.tolerance_of(tensors.op.tensors[index], tensors.frame());
    cuda::check(driver.cuMemsetD8Async(result.pointer(), 0, offsetof(CompareResult, first_mismatch), stream),
                "cuMemsetD8Async");
    cuda::check(driver.cuMemsetD8Async(result.pointer() + offsetof(CompareResult, first_mismatch), 0xff,
                                       sizeof(std::uint64_t), stream),
                "cuMemsetD8Async");
    CUdeviceptr got = state.address(), wanted = state.wanted.pointer(), out = result.pointer();
    std::array<void*, 10> squares = {&wanted,        shape.data(), &shape[1],   &shape[2],   &shape[3],
                                     strides.data(), &strides[1],  &strides[2], &strides[3], &out};
    int sampled = is_sampled() ? 1 : 0;
    std::array<void*, 14> compare_parameters = {
        &got,        &wanted,     shape.data(), &shape[1],           &shape[2],           &shape[3], strides.data(),
        &strides[1], &strides[2], &strides[3],  &tolerance.relative, &tolerance.absolute, &sampled,  &out};
    const jit::Module& module = compare.at(state.extent.type);
    const std::int64_t count = state.extent.count();
    launch_internal(module.function(squares_kernel), count, squares.data(), stream);
    launch_internal(module.function(outputs_kernel), count, compare_parameters.data(), stream);
    CompareResult compared{};
    result.copy_to_host(&compared, sizeof compared, stream);
    return verdict(index, compared, count, stream);
  }

  Check verdict(std::size_t index, const CompareResult& compared, std::int64_t count, CUstream stream) {
    const VerificationTensors::Tensor& state = tensors.tensors[index];
    const auto written = static_cast<double>(static_cast<std::uint64_t>(count) - compared.unwritten);
    const double rms = std::sqrt(compared.wanted_squares / std::max(static_cast<double>(compared.counted), 1.0));
    Check check;
    if (compared.unwritten > 0 && (written == 0 || !is_sampled())) {
      check.reason =
          fmt::format("the reference wrote {:.0f} of {} elements of output '{}'; {}", written, count,
                      tensors.op.tensors[index].name,
                      is_sampled() ? "let it write some of each" : "let it write all, or say 'sample' in [reference]");
      return check;
    }
    check.worst_error = rms > 0 ? compared.largest_error / rms : compared.largest_error;
    if (compared.mismatches > 0) {
      check.reason = fmt::format(
          "output '{}' differs from the reference in {} of {} elements, first at [{}]; largest error {:.3g} where the root mean square is {:.3g}",
          tensors.op.tensors[index].name, compared.mismatches, count, position(state.extent, compared.first_mismatch),
          compared.largest_error, rms);
      return check;
    }
    std::array<unsigned char, guard_bytes> guard{};
    const std::int64_t end = state.extent.elements * size_of(state.extent.type);
    cuda::check(cuda::Driver::get().cuMemcpyDtoHAsync_v2(guard.data(), state.address() + static_cast<CUdeviceptr>(end),
                                                         guard.size(), stream),
                "cuMemcpyDtoHAsync");
    synchronize(stream);
    check.right = std::all_of(guard.begin(), guard.end(), [](unsigned char byte) { return byte == poison_byte; });
    if (!check.right)
      check.reason = fmt::format("output '{}' was written past its end", tensors.op.tensors[index].name);
    return check;
  }
};

VerificationCase::VerificationCase(const manifest::Site& site, const Problem& problem, const std::string& arch,
                                   answer::Cubins& cubins, std::uint64_t seed, CUstream stream,
                                   const Placement& placement)
    : state_(std::make_unique<State>(site)) {
  state_->tensors.problem = problem;
  state_->load(arch, cubins);
  retarget(problem, seed, stream, placement);
}

VerificationCase::~VerificationCase() = default;
VerificationCase::VerificationCase(VerificationCase&&) noexcept = default;

void VerificationCase::retarget(const Problem& problem, std::uint64_t seed, CUstream stream,
                                const Placement& placement) {
  state_->tensors.problem = problem;
  state_->tensors.allocate(placement, stream);
  state_->tensors.fill(seed, stream);
  state_->run_reference(stream);
}

void VerificationCase::poison(CUstream stream) {
  state_->tensors.prepare(stream);
  state_->tensors.poison_outputs(stream);
}

void VerificationCase::prepare_at(const Problem& smaller, std::size_t prepare_case, CUstream stream) {
  state_->tensors.prepare(smaller, prepare_case, stream);
}

Check VerificationCase::check(CUstream stream) {
  Check all;
  all.right = true;
  const VerificationTensors& tensors = state_->tensors;
  for (std::size_t i = 0; i < tensors.tensors.size(); ++i) {
    if (!tensors.op.tensors[i].output || !tensors.takes_part(i) || tensors.arguments.tensors[i] == nullptr) continue;
    Check one = state_->check_output(i, stream);
    all.worst_error = std::max(all.worst_error, one.worst_error);
    if (!one.right) return one;
  }
  return all;
}

bool VerificationCase::admits(const jit::Executable& executable) const {
  return admits_at(state_->tensors.launched, executable);
}

bool VerificationCase::admits_at(const Problem& smaller, const jit::Executable& executable) const {
  jit::CallFrame frame;
  return executable.fill(frame, smaller, state_->tensors.arguments) &&
         executable.admits(frame, state_->tensors.arguments) == jit::Admission::admitted;
}

void VerificationCase::launch(const jit::Executable& executable, const TrialWorkspace& workspace, CUstream stream) {
  launch_at(state_->tensors.launched, executable, workspace, stream);
}

void VerificationCase::launch_at(const Problem& smaller, const jit::Executable& executable,
                                 const TrialWorkspace& workspace, CUstream stream) {
  jit::CallFrame frame;
  if (!executable.fill(frame, smaller, state_->tensors.arguments))
    throw Error(ErrorKind::bad_input, executable.explain_frame(smaller, state_->tensors.arguments));
  cuda::check(executable.launch(frame, state_->tensors.arguments, stream, workspace.blocks()), "launching a candidate");
}

Check VerificationCase::verify(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream) {
  Check result;
  result.right = true;
  result.reason = "not legal at these sizes, so not launched";
  if (!admits(executable)) return result;
  workspace.renew(stream);
  poison(stream);
  launch(executable, workspace, stream);
  result = check(stream);
  if (result.right && !workspace.is_left_zero(stream)) {
    result.right = false;
    result.reason = "left other values than zeros in a workspace that is 'zeroed', which other plans use too";
  }
  const auto goes_on = [&] { return result.right || launches_all(); };
  const auto take = [&](Check more) {
    if (result.right) result = std::move(more);
  };
  if (goes_on() && executable.zeroed_bytes() > 0 && can_repeat()) take(verify_repeated(executable, workspace, stream));
  if (goes_on())
    if (Check absent = verify_absent(executable, workspace, stream); !absent.right) take(std::move(absent));
  if (goes_on() && executable.overlaps_predecessor()) take(verify_overlapped(executable, workspace, stream));
  return result;
}

bool VerificationCase::launches_all() const { return state_->tensors.op.is_of_team(); }

bool VerificationCase::can_repeat() const {
  const auto frame = state_->tensors.frame();
  const auto is_read = [&](const manifest::Tensor& tensor) { return manifest::Op::is_initialised(tensor, frame); };
  return !state_->tensors.in_place && std::ranges::none_of(state_->tensors.op.tensors, is_read);
}

/// Checks a second launch in the same workspace, which finds zeros only where the first launch has left zeros.
Check VerificationCase::verify_repeated(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream) {
  poison(stream);
  launch(executable, workspace, stream);
  Check result = check(stream);
  if (!result.right)
    result.reason = fmt::format("launched again in the workspace that a launch has left: {}", result.reason);
  return result;
}

/// Checks a launch that leaves out every output that may be null. Right for an op without one, and where the executable
/// does not admit it.
Check VerificationCase::verify_absent(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream) {
  struct Restored {
    Arguments& arguments;
    Arguments before = arguments;
    ~Restored() { arguments = before; }
  } restored{state_->tensors.arguments};
  bool leaves_out = false;
  for (std::size_t i = 0; i < state_->tensors.op.tensors.size(); ++i) {
    const manifest::Tensor& tensor = state_->tensors.op.tensors[i];
    if (!tensor.output || !tensor.optional || restored.arguments.tensors[i] == nullptr) continue;
    restored.arguments.tensors[i] = nullptr;
    leaves_out = true;
  }
  Check result;
  result.right = true;
  if (!leaves_out || !admits(executable)) return result;
  workspace.renew(stream);
  poison(stream);
  launch(executable, workspace, stream);
  result = check(stream);
  if (!result.right) result.reason = fmt::format("launched without its optional outputs: {}", result.reason);
  return result;
}

/// Checks a launch that may begin before its predecessor ends, behind kernels that write its inputs, then behind
/// itself.
Check VerificationCase::verify_overlapped(const jit::Executable& executable, TrialWorkspace& workspace,
                                          CUstream stream) {
  Check result;
  result.right = true;
  for (int times = 1, most = can_repeat() ? 2 : 1; times <= most; ++times) {
    workspace.renew(stream);
    poison(stream);
    state_->tensors.poison_inputs(stream);
    synchronize(stream);  // so that refilling cannot overtake the poisoning
    state_->gate.hold(stream, [&] {
      state_->tensors.refill_inputs(stream);
      for (int i = 0; i < times; ++i) launch(executable, workspace, stream);
    });
    Check now = check(stream);
    if (!result.right) continue;
    result = std::move(now);
    if (result.right) continue;
    result.reason =
        fmt::format("launched early behind {}: {}", times == 1 ? "what writes its inputs" : "itself", result.reason);
    if (!launches_all()) break;
  }
  return result;
}

Check VerificationCase::verify(const jit::Executable& executable, CUstream stream) {
  TrialWorkspace workspace(executable);
  return verify(executable, workspace, stream);
}

TrialWorkspace::TrialWorkspace(const jit::Executable& executable)
    : scratch_bytes_(executable.workspace_bytes()), zeroed_bytes_(executable.zeroed_bytes()) {}

void TrialWorkspace::renew(CUstream stream) {
  if (scratch_.bytes() < scratch_bytes_) scratch_ = cuda::Buffer(scratch_bytes_);
  if (zeroed_.bytes() < zeroed_bytes_) zeroed_ = cuda::Buffer(zeroed_bytes_);
  scratch_.fill_bytes(poison_byte, stream);
  zeroed_.fill_bytes(0, stream);
}

bool TrialWorkspace::is_left_zero(CUstream stream) const {
  std::vector<std::byte> contents(static_cast<std::size_t>(zeroed_bytes_));
  zeroed_.copy_to_host(contents.data(), zeroed_bytes_, stream);
  return std::ranges::all_of(contents, [](std::byte each) { return each == std::byte{0}; });
}

const Arguments& VerificationCase::arguments() const noexcept { return state_->tensors.arguments; }
const Problem& VerificationCase::problem() const noexcept { return state_->tensors.problem; }
const Problem& VerificationCase::launched() const noexcept { return state_->tensors.launched; }
std::size_t VerificationCase::prepare_case() const noexcept { return state_->tensors.prepare_case; }

std::int64_t VerificationCase::bytes() const noexcept {
  std::int64_t total = 0;
  for (const auto& tensor : state_->tensors.tensors)
    total += tensor.data.bytes() + tensor.wanted.bytes() + tensor.kept.bytes() + tensor.parts.bytes();
  return total;
}

}  // namespace kiln::tune

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
#include "tune/tensor_extent.hpp"

namespace kiln::tune {
namespace {

constexpr std::int64_t guard_bytes = 256;    // after each output: a write past the end shows
constexpr unsigned char poison_byte = 0xff;  // a NaN in every floating type
constexpr unsigned fill_threads = 256;
constexpr unsigned late_threads = 64;       // a block a multiprocessor: a launch beside one for each tensor finds room
constexpr long long late_cycles = 150'000;  // some 80 us: by then what follows has begun if it can

/// templates/internal/compare.cuh, compare_result.
struct CompareResult {
  double wanted_squares;
  double error_squares;
  double largest_error;
  std::uint64_t mismatches;
  std::uint64_t first_mismatch;
};
static_assert(sizeof(CompareResult) == 40);

void synchronize(CUstream stream) {
  cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void launch_plain(CUfunction function, std::int64_t elements, void** parameters, CUstream stream) {
  constexpr std::int64_t most_blocks = 8192;
  const std::int64_t blocks = std::clamp<std::int64_t>((elements + fill_threads - 1) / fill_threads, 1, most_blocks);
  cuda::check(cuda::Driver::get().cuLaunchKernel(function, static_cast<unsigned>(blocks), 1, 1, fill_threads, 1, 1, 0,
                                                 stream, parameters, nullptr),
              "launching a kernel of templates/internal");
}

/// Launched so that the next kernel may begin while this one waits.
void launch_late(CUfunction function, unsigned blocks, void** parameters, CUstream stream) {
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{blocks, 1, 1, late_threads, 1, 1, 0, stream, &early, 1};
  cuda::check(cuda::Driver::get().cuLaunchKernelEx(&config, function, parameters, nullptr),
              "launching a kernel of templates/internal");
}

struct TensorState {
  TensorExtent extent;
  cuda::Buffer data;
  cuda::Buffer wanted;      // of an output: what the reference wrote
  std::int64_t offset = 0;  // bytes from the allocation to the first element
  [[nodiscard]] CUdeviceptr address() const { return data.pointer() + static_cast<CUdeviceptr>(offset); }
};

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
  const manifest::Op& op;
  manifest::DeviceFacts device;
  Problem problem;
  Problem launched;                  // what candidates are given: `problem`, or the bound of its lengths
  cuda::Buffer lengths;              // an int32 an axis
  cuda::Buffer true_lengths;         // what is written there late
  std::vector<TensorState> tensors;  // one a tensor of the op; nothing in it for one that takes no part
  Arguments arguments;               // for executables under trial
  Arguments reference_arguments;     // outputs replaced by `wanted`
  std::optional<std::pair<TensorId, TensorId>> in_place;
  std::map<manifest::DType, jit::Module> fill;
  std::map<manifest::DType, jit::Module> compare;
  std::optional<jit::Module> copy_late;  // of an op whose lengths may be on the device
  std::unique_ptr<jit::Executable> reference;
  cuda::Buffer result{static_cast<std::int64_t>(sizeof(CompareResult))};
  cuda::Gate gate;  // so that a launch meets what it may overtake, however slow the host is

  State(const manifest::Op& described, const manifest::DeviceFacts& facts)
      : op(described), device(facts), tensors(described.tensors.size()) {}

  [[nodiscard]] bool takes_part(std::size_t tensor) const {
    return manifest::Op::takes_part(op.tensors[tensor], manifest::make_frame(op, nullptr, problem, device));
  }

  [[nodiscard]] bool is_initialised(std::size_t tensor) const {
    return manifest::Op::is_initialised(op.tensors[tensor], manifest::make_frame(op, nullptr, problem, device));
  }

  void load(const std::string& arch, Cubins& cubins) {
    const auto frame = manifest::make_frame(op, nullptr, problem, device);
    const auto module = [&](std::map<manifest::DType, jit::Module>& modules, manifest::DType type,
                            const jit::Specialisation& specialisation) {
      if (modules.contains(type)) return;
      const jit::Cubin cubin = cubins.get_and_keep(specialisation).cubin;
      modules.try_emplace(type, cubin.image, cubin.lowered_names);
    };
    if (has_lengths(op)) {
      const jit::Cubin cubin = cubins.get_and_keep(late_copy_kernel(arch)).cubin;
      copy_late.emplace(cubin.image, cubin.lowered_names);
    }
    for (const manifest::Tensor& tensor : op.tensors) {
      if (!manifest::Op::takes_part(tensor, frame)) continue;
      const manifest::DType type = op.dtype_of(tensor, frame);
      module(fill, type, fill_kernel(type, arch));
      if (tensor.output) module(compare, type, compare_kernels(type, arch));
      if (manifest::Op::is_initialised(tensor, frame))
        module(fill, reference_type(type), fill_kernel(reference_type(type), arch));
    }
    const KeyedCubin cubin = cubins.get_and_keep(jit::specialise_reference(op, frame, arch));
    reference = std::make_unique<jit::Executable>(op, frame, cubin.cubin);
  }

  /// Lengths on the device, and the run-time values that the bound decides, which the reference is to be given too.
  void bound_lengths(const Problem& bound, std::vector<std::int64_t>& frame, CUstream stream) {
    std::array<std::int32_t, max_axes> values{};
    if (lengths.bytes() == 0) lengths = cuda::Buffer(sizeof values), true_lengths = cuda::Buffer(sizeof values);
    for (std::size_t i = 0; i < op.axes.size(); ++i) {
      if (!op.axes[i].on_device) continue;
      values[i] = static_cast<std::int32_t>(problem.axes[i]);
      arguments.set(AxisId{static_cast<std::uint8_t>(i)},
                    reinterpret_cast<const std::int32_t*>(lengths.pointer() + i * sizeof(std::int32_t)));
    }
    lengths.copy_from_host(values.data(), sizeof values, stream);
    true_lengths.copy_from_host(values.data(), sizeof values, stream);
    const auto bounded = manifest::make_frame(op, nullptr, bound, device);
    for (std::size_t i = 0; i < op.runtime.size(); ++i) {
      if (!op.runtime[i].default_integer) continue;
      const auto slot = static_cast<std::size_t>(op.first_runtime()) + i;
      const RuntimeId id{static_cast<std::uint8_t>(i), RuntimeId::Kind::integer};
      frame[slot] = bounded[slot];
      arguments.set(id, bounded[slot]);
      reference_arguments.set(id, bounded[slot]);
    }
  }

  /// Bytes of a tensor's memory for what is launched.
  std::int64_t bytes_of(const manifest::Tensor& tensor, const TensorExtent& extent,
                        std::span<const std::int64_t> frame) {
    std::int64_t elements = extent.elements;
    if (!(launched == problem)) {
      std::vector<std::int64_t> bounded(frame.begin(), frame.end());
      std::copy_n(launched.axes.begin(), op.axes.size(), bounded.begin());
      elements = extent_of(op, tensor, bounded).elements;
    }
    return elements * size_of(extent.type) + guard_bytes;
  }

  void allocate(const Placement& placement, CUstream stream) {
    arguments = reference_arguments = {};  // nothing of another placement
    set_runtime();
    auto frame = manifest::make_frame(op, nullptr, problem, device);
    launched = placement.bound.value_or(problem);
    if (placement.bound) bound_lengths(*placement.bound, frame, stream);
    for (const auto& [runtime, value] : placement.runtime) {
      frame[static_cast<std::size_t>(op.first_runtime()) + runtime.index] = value;
      arguments.set(runtime, value);
      reference_arguments.set(runtime, value);
    }
    for (const auto& [runtime, value] : placement.reals) {
      arguments.set(runtime, value);
      reference_arguments.set(runtime, value);
    }
    std::int64_t total = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      TensorState& state = tensors[i];
      if (!takes_part(i)) continue;
      state.extent = extent_of(op, op.tensors[i], frame);
      state.offset = placement.offset_elements * size_of(state.extent.type);
      const std::int64_t bytes = state.offset + bytes_of(op.tensors[i], state.extent, frame);
      const std::int64_t wanted =
          op.tensors[i].output ? state.extent.elements * size_of(reference_type(state.extent.type)) : 0;
      total += bytes + wanted;
      try {
        if (state.data.bytes() < bytes) state.data = cuda::Buffer(), state.data = cuda::Buffer(bytes);
        if (state.wanted.bytes() < wanted) state.wanted = cuda::Buffer(), state.wanted = cuda::Buffer(wanted);
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("{} {}: its tensors need {} bytes of device memory or more: {}", op.name,
                                              manifest::display_text(op, problem), total, error.what()));
      }
      const bool absent = op.tensors[i].optional && placement.leave_optional_out;
      arguments.tensors[i] = absent ? nullptr : reinterpret_cast<const void*>(state.address());
      reference_arguments.tensors[i] =
          op.tensors[i].output ? reinterpret_cast<const void*>(state.wanted.pointer()) : arguments.tensors[i];
    }
    in_place = placement.in_place;
    if (in_place) arguments.tensors[in_place->second.index] = arguments.tensors[in_place->first.index];
  }

  /// The input's values, in the output that takes its place.
  void fill_shared(CUstream stream) {
    if (!in_place) return;
    const TensorState& output = tensors[in_place->first.index];
    fill_one(output.address(), output.extent.type, in_place->second.index, fill_seed, stream);
  }

  /// Run-time reals without a default get a small positive value: an epsilon, a scale.
  void set_runtime() {
    for (std::size_t i = 0; i < op.runtime.size(); ++i) {
      const manifest::Runtime& runtime = op.runtime[i];
      if (runtime.default_real || runtime.default_integer) continue;
      const auto kind = runtime.is_integer() ? RuntimeId::Kind::integer
                                             : (runtime.type == manifest::RuntimeType::f32 ? RuntimeId::Kind::real32
                                                                                           : RuntimeId::Kind::real64);
      const RuntimeId id{static_cast<std::uint8_t>(i), kind};
      constexpr double small = 1e-5;
      runtime.is_integer() ? arguments.set(id, std::int64_t{1}) : arguments.set(id, small);
    }
    reference_arguments = arguments;
  }

  struct FillParameters {
    CUdeviceptr pointer;
    long long count;
    unsigned long long seed;
    int kind;
    double scale;
    std::array<void*, 6> pointers(long long* cycles) { return {&pointer, &count, &seed, &kind, &scale, cycles}; }
  };
  [[nodiscard]] FillParameters fill_parameters(CUdeviceptr pointer, std::size_t tensor, std::uint64_t seed) const {
    const manifest::Tensor& of = op.tensors[tensor];
    const double scale =
        of.last ? static_cast<double>(of.last->evaluate(manifest::make_frame(op, nullptr, problem, device)).number)
                : of.scale;
    return {pointer, tensors[tensor].extent.elements, seed * 0x9e3779b97f4a7c15ULL + tensor, static_cast<int>(of.fill),
            scale};
  }

  void fill_one(CUdeviceptr pointer, manifest::DType type, std::size_t tensor, std::uint64_t seed, CUstream stream) {
    FillParameters fill_with = fill_parameters(pointer, tensor, seed);
    auto parameters = fill_with.pointers(nullptr);
    launch_plain(fill.at(type).function(0), fill_with.count, parameters.data(), stream);
  }

  /// Every tensor with fresh values; outputs that are also read, the same values in both places.
  void fill_all(std::uint64_t seed, CUstream stream) {
    fill_seed = seed;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const manifest::Tensor& tensor = op.tensors[i];
      if (!takes_part(i)) continue;
      if (!tensor.output && !(launched == problem)) tensors[i].data.fill_bytes(poison_byte, stream);
      if (!tensor.output) fill_one(tensors[i].address(), tensors[i].extent.type, i, seed, stream);
      if (is_initialised(i))
        fill_one(tensors[i].wanted.pointer(), reference_type(tensors[i].extent.type), i, seed, stream);
    }
  }

  [[nodiscard]] bool is_bounded() const { return arguments.lengths_set != 0; }

  void poison_inputs(CUstream stream) {
    if (is_bounded()) lengths.fill_bytes(0, stream);  // of which nothing comes out right
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (!op.tensors[i].output && takes_part(i)) tensors[i].data.fill_bytes(poison_byte, stream);
    if (in_place) tensors[in_place->first.index].data.fill_bytes(poison_byte, stream);
  }

  /// Gives poisoned inputs and lengths their values back, by kernels that what follows may overtake.
  void refill_inputs(CUstream stream) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (op.tensors[i].output || !takes_part(i)) continue;
      const bool shared = in_place && in_place->second.index == i;
      FillParameters fill_with = fill_parameters(tensors[shared ? in_place->first.index : i].address(), i, fill_seed);
      long long cycles = late_cycles;
      auto parameters = fill_with.pointers(&cycles);
      launch_late(fill.at(tensors[i].extent.type).function(1), static_cast<unsigned>(device.sm_count()),
                  parameters.data(), stream);
    }
    if (!is_bounded()) return;
    CUdeviceptr to = lengths.pointer(), from = true_lengths.pointer();
    int count = max_axes;
    long long cycles = late_cycles;
    std::array<void*, 4> parameters = {&to, &from, &count, &cycles};
    launch_late(copy_late->function(0), 1, parameters.data(), stream);
  }

  void run_reference(CUstream stream) {
    jit::CallFrame frame;
    if (!reference->fill(frame, problem, reference_arguments))
      throw Error(ErrorKind::bad_input, reference->explain_frame(problem, reference_arguments));
    cuda::check(reference->launch(frame, reference_arguments, stream, 0), "launching the reference");
    synchronize(stream);
  }

  Check check_output(std::size_t index, CUstream stream) {
    const TensorState& state = tensors[index];
    const cuda::Driver& driver = cuda::Driver::get();
    std::array<long long, 4> shape{1, 1, 1, 1}, strides{0, 0, 0, 0};
    const std::size_t rank = state.extent.shape.size();
    for (std::size_t i = 0; i < rank; ++i) {
      shape[4 - rank + i] = state.extent.shape[i];
      strides[4 - rank + i] = state.extent.strides[i];
    }
    manifest::Tolerance tolerance =
        op.tolerance_of(state.extent.type, manifest::make_frame(op, nullptr, problem, device));
    cuda::check(driver.cuMemsetD8Async(result.pointer(), 0, offsetof(CompareResult, first_mismatch), stream),
                "cuMemsetD8Async");
    cuda::check(driver.cuMemsetD8Async(result.pointer() + offsetof(CompareResult, first_mismatch), 0xff,
                                       sizeof(std::uint64_t), stream),
                "cuMemsetD8Async");
    CUdeviceptr got = state.address(), wanted = state.wanted.pointer(), out = result.pointer();
    std::array<void*, 10> squares = {&wanted,        shape.data(), &shape[1],   &shape[2],   &shape[3],
                                     strides.data(), &strides[1],  &strides[2], &strides[3], &out};
    std::array<void*, 13> compare_parameters = {
        &got,        &wanted,     shape.data(), &shape[1],           &shape[2],           &shape[3], strides.data(),
        &strides[1], &strides[2], &strides[3],  &tolerance.relative, &tolerance.absolute, &out};
    const jit::Module& module = compare.at(state.extent.type);
    const std::int64_t count = state.extent.count();
    launch_plain(module.function(0), count, squares.data(), stream);
    launch_plain(module.function(1), count, compare_parameters.data(), stream);
    CompareResult compared{};
    result.copy_to_host(&compared, sizeof compared, stream);
    return verdict(index, compared, count, stream);
  }

  Check verdict(std::size_t index, const CompareResult& compared, std::int64_t count, CUstream stream) {
    const TensorState& state = tensors[index];
    const double rms = std::sqrt(compared.wanted_squares / static_cast<double>(count));
    Check check;
    check.worst_error = rms > 0 ? compared.largest_error / rms : compared.largest_error;
    if (compared.mismatches > 0) {
      check.reason = fmt::format(
          "output '{}' differs from the reference in {} of {} elements, first at [{}]; largest error {:.3g} where the root mean square is {:.3g}",
          op.tensors[index].name, compared.mismatches, count, position(state.extent, compared.first_mismatch),
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
    if (!check.right) check.reason = fmt::format("output '{}' was written past its end", op.tensors[index].name);
    return check;
  }

  std::uint64_t fill_seed = 0;
};

VerificationCase::VerificationCase(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device,
                                   const std::string& arch, Cubins& cubins, std::uint64_t seed, CUstream stream,
                                   const Placement& placement)
    : state_(std::make_unique<State>(op, device)) {
  state_->problem = problem;
  state_->load(arch, cubins);
  retarget(problem, seed, stream, placement);
}

VerificationCase::~VerificationCase() = default;
VerificationCase::VerificationCase(VerificationCase&&) noexcept = default;

void VerificationCase::retarget(const Problem& problem, std::uint64_t seed, CUstream stream,
                                const Placement& placement) {
  state_->problem = problem;
  state_->allocate(placement, stream);
  state_->fill_all(seed, stream);
  state_->run_reference(stream);
}

void VerificationCase::poison(CUstream stream) {
  State& state = *state_;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (!state.op.tensors[i].output || !state.takes_part(i)) continue;
    TensorState& tensor = state.tensors[i];
    tensor.data.fill_bytes(poison_byte, stream);
    if (state.is_initialised(i)) state.fill_one(tensor.address(), tensor.extent.type, i, state.fill_seed, stream);
  }
  state.fill_shared(stream);
}

Check VerificationCase::check(CUstream stream) {
  Check all;
  all.right = true;
  for (std::size_t i = 0; i < state_->tensors.size(); ++i) {
    if (!state_->op.tensors[i].output || !state_->takes_part(i)) continue;
    Check one = state_->check_output(i, stream);
    all.worst_error = std::max(all.worst_error, one.worst_error);
    if (!one.right) return one;
  }
  return all;
}

bool VerificationCase::admits(const jit::Executable& executable) const {
  return admits_at(state_->launched, executable);
}

bool VerificationCase::admits_at(const Problem& smaller, const jit::Executable& executable) const {
  jit::CallFrame frame;
  return executable.fill(frame, smaller, state_->arguments) &&
         executable.admits(frame, state_->arguments) == jit::Admission::admitted;
}

void VerificationCase::launch(const jit::Executable& executable, const TrialWorkspace& workspace, CUstream stream) {
  launch_at(state_->launched, executable, workspace, stream);
}

void VerificationCase::launch_at(const Problem& smaller, const jit::Executable& executable,
                                 const TrialWorkspace& workspace, CUstream stream) {
  jit::CallFrame frame;
  if (!executable.fill(frame, smaller, state_->arguments))
    throw Error(ErrorKind::bad_input, executable.explain_frame(smaller, state_->arguments));
  cuda::check(executable.launch(frame, state_->arguments, stream, workspace.pointer()), "launching a candidate");
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
  if (result.right && !executable.zeroed_ranges().empty() && can_repeat())
    result = verify_repeated(executable, workspace, stream);
  if (!result.right || !executable.overlaps_predecessor()) return result;
  return verify_overlapped(executable, workspace, stream);
}

bool VerificationCase::can_repeat() const {
  const auto frame = manifest::make_frame(state_->op, nullptr, state_->problem, state_->device);
  const auto is_read = [&](const manifest::Tensor& tensor) { return manifest::Op::is_initialised(tensor, frame); };
  return !state_->in_place && std::ranges::none_of(state_->op.tensors, is_read);
}

/// A launch must leave zeros where it found them, for the next one.
Check VerificationCase::verify_repeated(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream) {
  poison(stream);
  launch(executable, workspace, stream);
  Check result = check(stream);
  if (!result.right)
    result.reason = fmt::format("launched again in the workspace that a launch has left: {}", result.reason);
  return result;
}

/// A launch that may begin before its predecessor ends must not show it: not behind kernels that write its inputs, nor behind itself.
Check VerificationCase::verify_overlapped(const jit::Executable& executable, TrialWorkspace& workspace,
                                          CUstream stream) {
  Check result;
  for (int times = 1, most = can_repeat() ? 2 : 1; times <= most; ++times) {
    workspace.renew(stream);
    poison(stream);
    state_->poison_inputs(stream);
    synchronize(stream);  // so that refilling follows nothing that it might overtake
    state_->gate.hold(stream, [&] {
      state_->refill_inputs(stream);
      for (int i = 0; i < times; ++i) launch(executable, workspace, stream);
    });
    result = check(stream);
    if (result.right) continue;
    result.reason =
        fmt::format("launched early behind {}: {}", times == 1 ? "what writes its inputs" : "itself", result.reason);
    break;
  }
  return result;
}

Check VerificationCase::verify(const jit::Executable& executable, CUstream stream) {
  TrialWorkspace workspace(executable);
  return verify(executable, workspace, stream);
}

TrialWorkspace::TrialWorkspace(const jit::Executable& executable)
    : bytes_(executable.workspace_bytes()),
      zeroed_(executable.zeroed_ranges().begin(), executable.zeroed_ranges().end()) {}

void TrialWorkspace::renew(CUstream stream) {
  if (buffer_.bytes() < bytes_) buffer_ = cuda::Buffer(bytes_);
  buffer_.fill_bytes(poison_byte, stream);
  for (const jit::Executable::Range& range : zeroed_) buffer_.fill_bytes(0, range.offset, range.bytes, stream);
}

const Arguments& VerificationCase::arguments() const noexcept { return state_->arguments; }
const Problem& VerificationCase::problem() const noexcept { return state_->problem; }
const Problem& VerificationCase::launched() const noexcept { return state_->launched; }

std::int64_t VerificationCase::bytes() const noexcept {
  std::int64_t total = 0;
  for (const TensorState& tensor : state_->tensors) total += tensor.data.bytes() + tensor.wanted.bytes();
  return total;
}

}  // namespace kiln::tune

#include "tune/verification_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kiln/error.hpp"
#include "tune/internal_kernels.hpp"
#include "tune/verification_values.hpp"

namespace kiln::tune {
namespace {

constexpr unsigned internal_threads = 256;
constexpr unsigned late_threads =
    64;  // one block a multiprocessor, so that a launch for each tensor and a candidate are resident
constexpr long long late_cycles = 150'000;  // some 80 us, in which a launch that can overtake these kernels has begun

/// Launched so that the next kernel may begin while this one waits. Throws Error(driver_failed).
void launch_late(CUfunction function, unsigned blocks, void** parameters, CUstream stream) {
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{blocks, 1, 1, late_threads, 1, 1, 0, stream, &early, 1};
  cuda::check(cuda::Driver::get().cuLaunchKernelEx(&config, function, parameters, nullptr),
              "launching a kernel of templates/internal");
}

}  // namespace

void launch_internal(CUfunction function, std::int64_t elements, void** parameters, CUstream stream) {
  constexpr std::int64_t most_blocks = 8192;
  const std::int64_t blocks =
      std::clamp<std::int64_t>((elements + internal_threads - 1) / internal_threads, 1, most_blocks);
  cuda::check(cuda::Driver::get().cuLaunchKernel(function, static_cast<unsigned>(blocks), 1, 1, internal_threads, 1, 1,
                                                 0, stream, parameters, nullptr),
              "launching a kernel of templates/internal");
}

void VerificationTensors::load(const std::string& arch, answer::Cubins& cubins) {
  const auto load_fill = [&](manifest::DType type) {
    if (fill_.contains(type)) return;
    const jit::Cubin cubin = cubins.get_and_keep(fill_kernel(type, arch)).cubin;
    fill_.try_emplace(type, cubin.image, cubin.lowered_names);
  };
  if (op.prepare) preparation_.emplace(manifest::Site(op, device), frame(), arch, cubins);
  if (needs_late_copy(op)) {
    const jit::Cubin cubin = cubins.get_and_keep(late_copy_kernel(arch)).cubin;
    copy_late_.emplace(cubin.image, cubin.lowered_names);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!takes_part(i)) continue;
    const manifest::DType type = op.dtype_of(op.tensors[i], frame());
    load_fill(type);
    if (is_initialised(i)) load_fill(reference_type(type));
  }
}

/// Puts lengths on the device, and gives the run-time values that the bound decides to candidates and the reference.
void VerificationTensors::bound_lengths(const Placement& placement, std::vector<std::int64_t>& frame, CUstream stream) {
  std::array<std::int32_t, max_axes> values{};
  if (lengths_.bytes() == 0) lengths_ = cuda::Buffer(sizeof values), true_lengths_ = cuda::Buffer(sizeof values);
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    if (!op.axes[i].on_device) continue;
    values[i] = static_cast<std::int32_t>(problem.axes[i]);
    arguments.set(AxisId{static_cast<std::uint8_t>(i)},
                  reinterpret_cast<const std::int32_t*>(lengths_.pointer() + i * sizeof(std::int32_t)));
  }
  lengths_.copy_from_host(values.data(), sizeof values, stream);
  true_lengths_.copy_from_host(values.data(), sizeof values, stream);
  const auto bounded = verification_frame({op, device}, *placement.bound, placement.runtime);
  for (std::size_t i = 0; i < op.runtime.size(); ++i) {
    if (!op.runtime[i].is_integer() || op.runtime[i].team_rank) continue;
    const auto slot = static_cast<std::size_t>(op.first_runtime()) + i;
    const RuntimeId id = runtime_id(op, i);
    frame[slot] = bounded[slot];
    arguments.set(id, bounded[slot]);
    reference_arguments.set(id, bounded[slot]);
  }
}

/// Returns the bytes of a tensor at the launched sizes, with the guard.
std::int64_t VerificationTensors::bytes_of(const manifest::Tensor& tensor, const TensorExtent& extent,
                                           std::span<const std::int64_t> frame) const {
  std::int64_t elements = extent.elements;
  if (!(launched == problem)) {
    std::vector<std::int64_t> bounded(frame.begin(), frame.end());
    std::copy_n(launched.axes.begin(), op.axes.size(), bounded.begin());
    elements = extent_of(op, tensor, bounded).elements;
  }
  return elements * size_of(extent.type) + guard_bytes;
}

void VerificationTensors::allocate(const Placement& placement, CUstream stream) {
  arguments = reference_arguments = {};
  auto frame = verification_frame({op, device}, problem, placement.runtime);
  set_verification_values(op, frame, arguments);
  reference_arguments = arguments;
  set_rank(placement);
  launched = placement.bound.value_or(problem);
  if (placement.bound) bound_lengths(placement, frame, stream);
  for (const auto& [runtime, value] : placement.runtime) {
    arguments.set(runtime, value);
    reference_arguments.set(runtime, value);
  }
  for (const auto& [runtime, value] : placement.reals) {
    arguments.set(runtime, value);
    reference_arguments.set(runtime, value);
  }
  std::int64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Tensor& state = tensors[i];
    if (!takes_part(i)) continue;
    state.extent = extent_of(op, op.tensors[i], frame);
    state.offset = placement.offset_elements * size_of(state.extent.type);
    const std::int64_t bytes = state.offset + bytes_of(op.tensors[i], state.extent, frame);
    if (op.tensors[i].per_rank) state.part_stride = part_stride(op, op.tensors[i], state.extent, world());
    const std::int64_t reference = reference_bytes(i);
    cuda::Buffer& for_reference = op.tensors[i].per_rank ? state.parts : state.wanted;
    total += bytes + reference;
    try {
      if (state.data.bytes() < bytes) state.data = cuda::Buffer(), state.data = cuda::Buffer(bytes);
      if (for_reference.bytes() < reference) for_reference = cuda::Buffer(), for_reference = cuda::Buffer(reference);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{} {}: its tensors need {} bytes of device memory or more: {}", op.name,
                                            manifest::display_text(op, problem), total, error.what()));
    }
    const bool absent = op.tensors[i].optional && placement.leave_optional_out;
    arguments.tensors[i] = absent ? nullptr : reinterpret_cast<const void*>(state.address());
    const bool is_apart = op.tensors[i].output || (op.tensors[i].per_rank && !absent);
    reference_arguments.tensors[i] =
        is_apart ? reinterpret_cast<const void*>(for_reference.pointer()) : arguments.tensors[i];
  }
  in_place = placement.in_place;
  if (in_place && is_prepared(in_place->second.index))
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: '{}' is prepared, so no output may take its place in a verification", op.name,
                            op.tensors[in_place->second.index].name));
  prepare_case = placement.prepare_case;
  if (in_place) arguments.tensors[in_place->second.index] = arguments.tensors[in_place->first.index];
}

std::int64_t VerificationTensors::world() const {
  const int axis = op.team_axis();
  return axis < 0 ? 1 : problem.axes[static_cast<std::size_t>(axis)];
}

void VerificationTensors::set_rank(const Placement& placement) {
  rank = placement.rank;
  if (rank < 0 || rank >= world())
    throw Error(ErrorKind::bad_input, fmt::format("{} {}: a verification as rank {} of {} was asked for; give a rank "
                                                  "below the number of ranks",
                                                  op.name, manifest::display_text(op, problem), rank, world()));
  for (std::size_t i = 0; i < op.runtime.size(); ++i)
    if (op.runtime[i].team_rank) reference_arguments.set(runtime_id(op, i), std::int64_t{rank});
}

std::int64_t VerificationTensors::reference_bytes(std::size_t tensor) const {
  const Tensor& state = tensors[tensor];
  if (op.tensors[tensor].output) return state.extent.elements * size_of(reference_type(state.extent.type));
  return op.tensors[tensor].per_rank ? world() * state.part_stride * size_of(state.extent.type) : 0;
}

std::vector<std::int64_t> VerificationTensors::frame() const { return verification_frame({op, device}, problem); }

VerificationTensors::FillParameters VerificationTensors::fill_parameters(CUdeviceptr pointer, std::size_t tensor,
                                                                         std::uint64_t seed,
                                                                         std::int32_t of_rank) const {
  const manifest::Tensor& of = op.tensors[tensor];
  if (of.per_rank)
    seed += static_cast<std::uint64_t>(of_rank) * 0xbf58476d1ce4e5b9ULL;  // odd: no two ranks have equal seeds
  const double scale = of.last ? static_cast<double>(of.last->evaluate(frame()).number) : of.scale;
  return {pointer, tensors[tensor].extent.elements, seed * 0x9e3779b97f4a7c15ULL + tensor, static_cast<int>(of.fill),
          scale};
}

void VerificationTensors::fill_one(CUdeviceptr pointer, manifest::DType type, std::size_t tensor, std::uint64_t seed,
                                   std::int32_t of_rank, CUstream stream) {
  FillParameters fill_with = fill_parameters(pointer, tensor, seed, of_rank);
  auto parameters = fill_with.pointers(nullptr);
  launch_internal(fill_.at(type).function(0), fill_with.count, parameters.data(), stream);
}

void VerificationTensors::fill_parts(std::size_t tensor, std::uint64_t seed, CUstream stream) {
  const Tensor& state = tensors[tensor];
  const std::int64_t part_bytes = state.part_stride * size_of(state.extent.type);
  for (std::int32_t of_rank = 0; of_rank < world(); ++of_rank) {
    const auto offset = static_cast<CUdeviceptr>(part_bytes) * static_cast<CUdeviceptr>(of_rank);
    fill_one(state.parts.pointer() + offset, state.extent.type, tensor, seed, of_rank, stream);
  }
}

void VerificationTensors::fill(std::uint64_t seed, CUstream stream) {
  seed_ = seed;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const manifest::Tensor& tensor = op.tensors[i];
    if (!takes_part(i)) continue;
    if (!tensor.output && !(launched == problem)) tensors[i].data.fill_bytes(poison_byte, stream);
    if (!tensor.output && !is_prepared(i))
      fill_one(tensors[i].address(), tensors[i].extent.type, i, seed, rank, stream);
    if (tensor.per_rank) fill_parts(i, seed, stream);
    if (is_initialised(i))
      fill_one(tensors[i].wanted.pointer(), reference_type(tensors[i].extent.type), i, seed, rank, stream);
  }
  prepared_for_.reset();
  prepare(stream);
}

void VerificationTensors::prepare(const Problem& at, std::size_t which, CUstream stream) {
  if (!preparation_ || prepared_for_ == std::pair(at, which)) return;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (is_prepared(i)) tensors[i].data.fill_bytes(poison_byte, stream);
  prepared_for_.reset();
  preparation_->run(at, reference_arguments, seed_, which, stream);
  prepared_for_.emplace(at, which);
}

void VerificationTensors::poison_outputs(CUstream stream) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!op.tensors[i].output || !takes_part(i)) continue;
    tensors[i].data.fill_bytes(poison_byte, stream);
    if (is_initialised(i)) fill_one(tensors[i].address(), tensors[i].extent.type, i, seed_, rank, stream);
  }
  if (!in_place) return;
  const Tensor& output = tensors[in_place->first.index];
  fill_one(output.address(), output.extent.type, in_place->second.index, seed_, rank, stream);
}

void VerificationTensors::poison_inputs(CUstream stream) {
  if (is_bounded()) lengths_.fill_bytes(0, stream);  // a launch that reads a length of 0 gives a wrong result
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (op.tensors[i].output || !takes_part(i)) continue;
    Tensor& state = tensors[i];
    if (is_prepared(i)) {
      if (state.kept.bytes() < state.data.bytes())
        state.kept = cuda::Buffer(), state.kept = cuda::Buffer(state.data.bytes());
      cuda::check(cuda::Driver::get().cuMemcpyDtoDAsync_v2(state.kept.pointer(), state.data.pointer(),
                                                           static_cast<std::size_t>(state.data.bytes()), stream),
                  "keeping a prepared input");
    }
    state.data.fill_bytes(poison_byte, stream);
  }
  if (in_place) tensors[in_place->first.index].data.fill_bytes(poison_byte, stream);
}

void VerificationTensors::refill_inputs(CUstream stream) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (op.tensors[i].output || !takes_part(i)) continue;
    if (is_prepared(i)) {
      copy_late(tensors[i].data.pointer(), tensors[i].kept.pointer(), tensors[i].data.bytes(), stream);
      continue;
    }
    const bool shared = in_place && in_place->second.index == i;
    FillParameters fill_with = fill_parameters(tensors[shared ? in_place->first.index : i].address(), i, seed_, rank);
    long long cycles = late_cycles;
    auto parameters = fill_with.pointers(&cycles);
    launch_late(fill_.at(tensors[i].extent.type).function(1), static_cast<unsigned>(device.sm_count()),
                parameters.data(), stream);
  }
  if (is_bounded()) copy_late(lengths_.pointer(), true_lengths_.pointer(), max_axes * sizeof(std::int32_t), stream);
}

/// Copies whole words. A tensor's last bytes are its guard.
void VerificationTensors::copy_late(CUdeviceptr to, CUdeviceptr from, std::int64_t bytes, CUstream stream) {
  long long count = bytes / static_cast<std::int64_t>(sizeof(std::int32_t)), cycles = late_cycles;
  std::array<void*, 4> parameters = {&to, &from, &count, &cycles};
  const unsigned blocks = count <= late_threads ? 1 : static_cast<unsigned>(device.sm_count());
  launch_late(copy_late_->function(0), blocks, parameters.data(), stream);
}

}  // namespace kiln::tune

// The parts of a launch that few launches run, kept out of line, and the errors of impossible launches.
#include <algorithm>
#include <bit>
#include <cstring>

#include "jit/executable.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

inline bool compute_one(const PassForm::Computed& how, const LaunchInput& input) {
  std::int64_t& value = input.frame.values[how.to];
  if (how.kind == manifest::ArgumentKind::tensor) {
    value = input.frame.slots[static_cast<std::size_t>(how.offset)];
    return true;
  }
  if (how.kind != manifest::ArgumentKind::expression) {
    const bool zeroed = how.kind == manifest::ArgumentKind::zeroed_workspace;
    value = static_cast<std::int64_t>(zeroed ? input.workspace.zeroed : input.workspace.scratch) + how.offset;
    return true;
  }
  return how.value.evaluate(input.frame.view(), value) && value >= how.limits.lowest && value <= how.limits.highest;
}

/// Launches the passes, and the library's call before or after them. `library` may be null. `check` looks for a pass
/// that would be refused.
///
/// A call that comes first is a collective. Once it is enqueued, the other ranks go on by it, so no other
/// implementation may serve this rank alone: what can be refused is refused before, on all ranks alike, and what the
/// driver refuses after it is an error.
template <typename Check, typename Passes>
CUresult in_order(const LibraryCall* library, const LaunchInput& input, const Check& check, const Passes& passes) {
  if (library == nullptr || !library->is_first()) {
    const CUresult result = passes();
    return result == CUDA_SUCCESS && library != nullptr ? library->launch(input) : result;
  }
  if (const CUresult result = check(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = library->launch(input); result != CUDA_SUCCESS) return result;
  const CUresult result = passes();
  return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_UNKNOWN
                                            : result;  // the former asks for another implementation
}

/// Whether the driver takes the grid as a whole: cooperative limit and cluster multiples.
bool takes_grid(const LoadedPass& pass, const CUlaunchConfig& config) {
  const std::int64_t blocks_yz = std::int64_t{config.gridDimY} * config.gridDimZ;  // each within 16 bits
  if (config.gridDimX > pass.most_blocks / blocks_yz) return false;
  return std::all_of(
      pass.attributes.begin(), pass.attributes.begin() + pass.attribute_count, [&](const CUlaunchAttribute& each) {
        if (each.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) return true;
        const auto& cluster = each.value.clusterDim;
        return config.gridDimX % cluster.x == 0 && config.gridDimY % cluster.y == 0 && config.gridDimZ % cluster.z == 0;
      });
}

}  // namespace

void PassForm::link(CallFrame& frame, PassCall& call) const noexcept {
  for (std::size_t i = first_value; i < past_values; ++i) frame.values[i] = constants[i];
  for (AxisLength& length : frame.lengths) length.unused = 0;
  call.config = config;
  call.function = function;
  const auto* const begin = reinterpret_cast<const std::byte*>(&frame);
  for (std::size_t i = 0; i < arguments; ++i) call.parameters[i] = begin + offsets[i];
  for (const Fixed& each : fixed) call.parameters[each.parameter] = each.address;
}

[[gnu::noinline]] bool PassForm::arrange_any(const LaunchInput& input, PassCall& call) const {
  for (const GridSize& size : grid) {
    std::int64_t blocks = 0;
    if (!size.blocks.evaluate(input.frame.view(), blocks) || !size.set(blocks, call.config)) return false;
  }
  for (unsigned left = lengths; left != 0; left &= left - 1)
    arrange_length(input, static_cast<std::size_t>(std::countr_zero(left)));
  return arrange_more(input, call);
}

bool PassForm::arrange_more(const LaunchInput& input, PassCall& call) const {
  for (std::size_t at = 0; at < constant_pieces * piece; at += piece)
    std::memcpy(&input.frame.values[at], &constants[at], piece * sizeof constants[0]);
  if (!compute(input)) return false;
  if (maps.size() != 0) arrange_maps(input, call);
  if (has_workspace_maps) [[unlikely]]
    arrange_workspace_maps(input, call);
  return true;
}

inline bool PassForm::compute(const LaunchInput& input) const {
  for (const Computed& each : computed)
    if (!compute_one(each, input)) return false;
  return true;
}

inline void PassForm::arrange_map(const TensorMapCache::Entry* own, const TensorMapForm& form, const void* address,
                                  CallFrame& frame, PassCall& call) const {
  const CUtensorMap* map = TensorMapCache::find(own, form, address, frame.view());
  if (map == nullptr) [[unlikely]]
    map = make_map(form, address, frame);
  call.parameters[form.parameter] = map;
}

inline void PassForm::arrange_maps(const LaunchInput& input, PassCall& call) const {
  const TensorMapCache::Entry* const own = made_maps->own();
  for (const TensorMapForm& each : maps)
    arrange_map(own, each, input.arguments.tensors[each.tensor], input.frame, call);
}

[[gnu::noinline]] void PassForm::arrange_workspace_maps(const LaunchInput& input, PassCall& call) const {
  const TensorMapCache::Entry* const own = made_maps->own();
  for (const TensorMapForm& each : workspace_maps)
    arrange_map(own, each, std::bit_cast<const void*>(input.frame.values[each.tensor]), input.frame, call);
}

[[gnu::cold, gnu::noinline]] const CUtensorMap* PassForm::make_map(const TensorMapForm& form, const void* address,
                                                                   CallFrame& frame) const {
  if (address == nullptr) return &no_tensor_map;  // an optional tensor that the launch leaves out
  CUtensorMap& made = frame.maps[form.index];
  make_tensor_map(*map_arguments[form.index], address, frame.view(), *kernel, made);
  const CUtensorMap* const kept = made_maps->keep(form, address, frame.view(), made);
  return kept != nullptr ? kept : &made;
}

[[gnu::noinline]] void LaunchForm::fill_many(CallFrame& call, const Problem& problem) const noexcept {
  std::copy(problem.axes.begin(), problem.axes.begin() + axes, call.slots.begin());
  call.given = ~0U;
}

[[gnu::noinline]] void LaunchForm::restore(CallFrame& call, std::uint32_t which) const noexcept {
  for (std::uint32_t left = which & declared; left != 0; left &= left - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(left));
    call.slots[values[i]] = defaults[i];
  }
}

bool LaunchForm::fill_checked(std::size_t i, CallFrame& call, const Arguments& arguments) const noexcept {
  return runtime[i].fill((arguments.runtime_set >> i & 1U) != 0, arguments.runtime[i], call.view(),
                         call.slots[values[i]]) == Fault::none;
}

bool LaunchForm::Constraints::hold(const CallFrame& call) const noexcept {
  std::uint64_t below = 0;  // bits that must be 0
  for (const Masked& each : masked) below |= static_cast<std::uint64_t>(call.slots[each.slot]) & each.mask;
  if (below != 0) return false;
  for (const manifest::Formula& each : formulas)
    if (!each.truth(call.view())) return false;
  return true;
}

bool LaunchForm::open_hold(const CallFrame& call, const Arguments& arguments) const noexcept {
  const Constraints& open = !is_inside(call)                             ? constraints_elsewhere
                            : (arguments.runtime_set & constrained) == 0 ? constraints_at_defaults
                                                                         : constraints;
  return open.hold(call);
}

void Executable::link(std::size_t pass, CallFrame& frame, PassCall& call) const noexcept {
  form_.passes[pass].link(frame, call);
}

void Executable::arrange(std::size_t pass, const LaunchInput& input, PassCall& call) const {
  if (!form_.passes[pass].arrange(input, call)) refuse(form_.passes[pass], input.frame);
}

bool Executable::fits(CallFrame& frame, const Arguments& arguments) const noexcept {
  PassCall call;
  constexpr CUdeviceptr any_block = 256;  // not null, so that descriptors of workspaces are made and checked
  try {
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      link(i, frame, call);
      if (!form_.passes[i].arrange({frame, arguments, nullptr, {any_block, any_block}, 0}, call) ||
          !takes_grid(passes_[i], call.config))
        return false;
    }
    return true;
  } catch (const std::exception&) {  // a TMA descriptor that the driver refuses
    return false;
  }
}

CUresult Executable::launch(CallFrame& call, const Arguments& arguments, CUstream stream, WorkspaceBlocks workspace,
                            CUdeviceptr reports) const {
  const LaunchInput input{call, arguments, stream, workspace, reports};
  const auto each_pass = [&](const auto& act) {
    PassCall linked;
    for (const PassForm& pass : form_.passes) {
      pass.link(call, linked);
      if (const CUresult result = act(pass, linked); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  };
  return in_order(
      library_.get(), input,
      [&] {
        return each_pass([&](const PassForm& pass, PassCall& linked) { return check_pass(pass, input, linked); });
      },
      [&] {
        return each_pass([&](const PassForm& pass, PassCall& linked) { return launch_pass(pass, input, linked); });
      });
}

CUresult Executable::launch_with_library(ThreadCall& kept, const LaunchInput& input) const {
  return in_order(
      library_.get(), input,
      [&] {
        PassCall* linked = kept.passes();
        for (const PassForm& pass : form_.passes)
          if (const CUresult result = check_pass(pass, input, *linked++); result != CUDA_SUCCESS) return result;
        return CUDA_SUCCESS;
      },
      [&] { return launch_passes(kept, input); });
}

CUresult Executable::check_pass(const PassForm& pass, const LaunchInput& input, PassCall& linked) const {
  if (!pass.arrange(input, linked)) refuse(pass, input.frame);
  return takes_grid(loaded(pass), linked.config) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

const LoadedPass& Executable::loaded(const PassForm& form) const noexcept {
  return passes_[static_cast<std::size_t>(&form - form_.passes.data())];
}

void Executable::refuse(const PassForm& form, const CallFrame& call) const {
  const LoadedPass& pass = loaded(form);
  for (const LoadedArgument& argument : pass.arguments) {
    const bool is_pack = argument.kind == manifest::ArgumentKind::pack;
    for (const LoadedArgument& each : is_pack ? std::span(argument.members) : std::span(&argument, 1))
      if (each.kind == manifest::ArgumentKind::expression)
        size_or_throw(each.value, call.view(), each.limits.lowest, each.limits.highest, pass.kernel, "an argument");
  }
  size_or_throw(pass.grid[0], call.view(), 1, most_grid_x, pass.kernel, "grid x");
  size_or_throw(pass.grid[1], call.view(), 1, most_grid_yz, pass.kernel, "grid y");
  size_or_throw(pass.grid[2], call.view(), 1, most_grid_yz, pass.kernel, "grid z");
  throw Error(ErrorKind::bad_input, pass.kernel + ": the launch is out of limits at these sizes");
}

}  // namespace kiln::jit

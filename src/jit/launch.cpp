// The end of the call lane: geometry from real sizes, arguments by address, the driver's launch.
#include <algorithm>

#include "jit/executable.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

inline bool compute(const PassForm& form, const PassForm::Computed& how, const LaunchInput& input,
                    ComputedArguments& computed) {
  switch (how.kind) {
    case spec::ArgumentKind::workspace:
      computed.values[how.to] = static_cast<std::int64_t>(input.workspace) + how.offset;
      return true;
    case spec::ArgumentKind::length:
      computed.lengths[how.to] = {input.arguments.lengths[how.from],
                                  input.reports == 0 ? 0 : input.reports + how.from * sizeof(std::uint64_t),
                                  static_cast<std::int32_t>(input.frame.slots[how.from]), 0};
      return true;
    case spec::ArgumentKind::tensor_map: {
      const void* address = input.arguments.tensors[how.from];
      if (!form.maps[how.to].find(address, input.frame.view(), computed.maps[how.to])) [[unlikely]]
        form.maps[how.to].make(address, input.frame.view(), *form.kernel, computed.maps[how.to]);
      return true;
    }
    default: {
      std::int64_t& value = computed.values[how.to];
      return how.value.evaluate(input.frame.view(), value) && value >= how.minimum && value <= how.maximum;
    }
  }
}

/// What the driver looks at beyond each size of the grid.
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

bool PassForm::arrange(const LaunchInput& input, PassCall& call) const {
  for (const Computed& each : computed)
    if (!compute(*this, each, input, call.computed)) return false;
  call.function = function;
  call.config = config;
  call.config.hStream = input.stream;
  for (const GridSize& size : grid) {
    std::int64_t blocks = 0;
    if (!size.blocks.evaluate(input.frame.view(), blocks) || blocks < 1 || blocks > size.most) return false;
    call.config.*size.dimension = static_cast<unsigned>(blocks);
  }
  const std::array<const void*, 4> sources = {input.arguments.tensors.data(), input.frame.slots.data(),
                                              constants.data(), &call.computed};
  const void** parameter = call.parameters.data();
  for (const Argument& each : arguments)
    *parameter++ = static_cast<const std::byte*>(sources[static_cast<std::size_t>(each.source)]) + each.offset;
  return true;
}

void Executable::arrange(std::size_t pass, const LaunchInput& input, PassCall& call) const {
  if (!form_.passes[pass].arrange(input, call)) refuse(passes_[pass], input.frame);
}

bool Executable::fits(const CallFrame& frame, const Arguments& arguments) const noexcept {
  PassCall call;
  try {
    for (std::size_t i = 0; i < passes_.size(); ++i)
      if (!form_.passes[i].arrange({frame, arguments, nullptr, 0, 0}, call) || !takes_grid(passes_[i], call.config))
        return false;
    return true;
  } catch (const std::exception&) {  // a TMA descriptor that the driver refuses
    return false;
  }
}

CUresult Executable::launch(const CallFrame& frame, const Arguments& arguments, CUstream stream, CUdeviceptr workspace,
                            CUdeviceptr reports) const {
  const LaunchInput input{frame, arguments, stream, workspace, reports};
  PassCall call;
  for (const PassForm& pass : form_.passes) {
    if (!pass.arrange(input, call)) [[unlikely]]
      refuse(passes_[static_cast<std::size_t>(&pass - form_.passes.data())], frame);
    const CUresult result =
        launch_kernel_(&call.config, call.function, const_cast<void**>(call.parameters.data()), nullptr);
    if (result != CUDA_SUCCESS) [[unlikely]]
      return result;
  }
  return CUDA_SUCCESS;
}

/// Says which argument or size of the grid is out of its limits.
void Executable::refuse(const LoadedPass& pass, const CallFrame& call) const {
  for (const LoadedArgument& argument : pass.arguments)
    if (argument.kind == spec::ArgumentKind::expression)
      size_or_throw(argument.value, call.view(), argument.minimum, argument.maximum, pass.kernel, "an argument");
  size_or_throw(pass.grid[0], call.view(), 1, most_grid_x, pass.kernel, "grid x");
  size_or_throw(pass.grid[1], call.view(), 1, most_grid_yz, pass.kernel, "grid y");
  size_or_throw(pass.grid[2], call.view(), 1, most_grid_yz, pass.kernel, "grid z");
  throw Error(ErrorKind::bad_input, pass.kernel + ": the launch is out of limits at these sizes");
}

}  // namespace kiln::jit

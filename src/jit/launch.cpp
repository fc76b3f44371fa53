// The end of the call lane: geometry from real sizes, arguments by address, the driver's launch.
#include <fmt/format.h>

#include "cuda/device.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

constexpr std::int64_t max_grid_x = 2147483647;
constexpr std::int64_t max_grid_yz = 65535;

CUtensorMapDataType tensor_map_type(spec::DType type) noexcept {
  switch (type) {
    case spec::DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case spec::DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case spec::DType::f32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case spec::DType::f64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case spec::DType::i32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case spec::DType::i64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
    default: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

CUtensorMapSwizzle tensor_map_swizzle(std::uint32_t bytes) noexcept {
  switch (bytes) {
    case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    default: return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

std::int64_t size_or_throw(const spec::Expression& expression, const CallFrame& call, std::int64_t minimum,
                           std::int64_t maximum, const std::string& kernel, const char* what) {
  const spec::Value value = expression.evaluate(call.view());
  if (value.ok() && value.number >= minimum && value.number <= maximum) return value.number;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{}: {} = {} is {} at these sizes; it must lie between {} and {}", kernel, what, expression.text(),
                  value.ok() ? fmt::to_string(value.number) : std::string(to_string(value.status)), minimum, maximum));
}

/// kiln::axis_length of templates/common/length.cuh, as the device sees it.
struct AxisLength {
  const std::int32_t* on_device;
  CUdeviceptr report;
  std::int32_t bound;
  std::int32_t unused;
};
static_assert(sizeof(AxisLength) == 24);

struct TensorMapShape {
  std::array<std::uint64_t, spec::max_rank> dimensions{};
  std::array<std::uint64_t, spec::max_rank> stride_bytes{};  // of all but the innermost
  std::array<std::uint32_t, spec::max_rank> box{};
  std::array<std::uint32_t, spec::max_rank> element_strides{1, 1, 1, 1};
};

/// Manifests list dimensions outermost first, the driver innermost first.
TensorMapShape tensor_map_shape(const std::vector<spec::Expression>& shape,
                                const std::vector<spec::Expression>& strides, const std::vector<spec::Expression>& box,
                                std::int64_t element_bytes, const CallFrame& call, const std::string& kernel) {
  TensorMapShape result;
  const std::size_t rank = shape.size();
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t from = rank - 1 - i;
    result.dimensions[i] = static_cast<std::uint64_t>(
        size_or_throw(shape[from], call, 1, std::int64_t{1} << 32, kernel, "a TMA dimension"));
    result.box[i] = static_cast<std::uint32_t>(size_or_throw(box[from], call, 1, 256, kernel, "a TMA box"));
    const std::int64_t stride = size_or_throw(strides[from], call, 1, std::int64_t{1} << 36, kernel, "a TMA stride");
    if (i == 0 && stride != 1)
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: TMA needs an innermost stride of 1, found {}", kernel, stride));
    if (i > 0) result.stride_bytes[i - 1] = static_cast<std::uint64_t>(stride * element_bytes);
  }
  return result;
}

}  // namespace

CUresult Executable::launch(const CallFrame& call, const Arguments& arguments, CUstream stream, CUdeviceptr workspace,
                            CUdeviceptr reports) const {
  for (const LoadedPass& pass : passes_)
    if (const CUresult result = launch_pass(pass, call, arguments, stream, workspace, reports); result != CUDA_SUCCESS)
      return result;
  return CUDA_SUCCESS;
}

CUresult Executable::launch_pass(const LoadedPass& pass, const CallFrame& call, const Arguments& arguments,
                                 CUstream stream, CUdeviceptr workspace, CUdeviceptr reports) const {
  const cuda::Driver& driver = cuda::Driver::get();
  alignas(64) std::array<CUtensorMap, spec::max_tensor_maps> maps;
  std::array<std::int64_t, spec::max_arguments> values;
  std::array<void*, spec::max_arguments> parameters;
  std::array<AxisLength, max_axes> lengths;
  std::size_t used_maps = 0;
  for (std::size_t i = 0; i < pass.arguments.size(); ++i) {
    const LoadedArgument& argument = pass.arguments[i];
    const auto index = static_cast<std::size_t>(argument.index);
    switch (argument.kind) {
      case spec::ArgumentKind::tensor: parameters[i] = const_cast<const void**>(&arguments.tensors[index]); break;
      case spec::ArgumentKind::axis:
      case spec::ArgumentKind::runtime: parameters[i] = const_cast<std::int64_t*>(&call.slots[index]); break;
      case spec::ArgumentKind::workspace:
        values[i] = static_cast<std::int64_t>(workspace) + argument.offset;
        parameters[i] = &values[i];
        break;
      case spec::ArgumentKind::expression:
        values[i] = size_or_throw(argument.value, call, argument.minimum, argument.maximum, pass.kernel, "an argument");
        parameters[i] = &values[i];
        break;
      case spec::ArgumentKind::length:
        lengths[index] = {arguments.lengths[index], reports == 0 ? 0 : reports + index * sizeof(std::uint64_t),
                          static_cast<std::int32_t>(call.slots[index]), 0};
        parameters[i] = &lengths[index];
        break;
      case spec::ArgumentKind::tensor_map: {
        TensorMapShape shape = tensor_map_shape(argument.shape, argument.strides, argument.box, size_of(argument.dtype),
                                                call, pass.kernel);
        cuda::check(
            driver.cuTensorMapEncodeTiled(&maps[used_maps], tensor_map_type(argument.dtype),
                                          static_cast<std::uint32_t>(argument.shape.size()),
                                          const_cast<void*>(arguments.tensors[index]), shape.dimensions.data(),
                                          shape.stride_bytes.data(), shape.box.data(), shape.element_strides.data(),
                                          CU_TENSOR_MAP_INTERLEAVE_NONE, tensor_map_swizzle(argument.swizzle),
                                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            "cuTensorMapEncodeTiled (is the address 16-byte aligned and each stride a multiple of 16 bytes?)");
        parameters[i] = &maps[used_maps++];
        break;
      }
    }
  }
  CUlaunchConfig config = pass.config;
  config.gridDimX = static_cast<unsigned>(size_or_throw(pass.grid[0], call, 1, max_grid_x, pass.kernel, "grid x"));
  config.gridDimY = static_cast<unsigned>(size_or_throw(pass.grid[1], call, 1, max_grid_yz, pass.kernel, "grid y"));
  config.gridDimZ = static_cast<unsigned>(size_or_throw(pass.grid[2], call, 1, max_grid_yz, pass.kernel, "grid z"));
  config.hStream = stream;
  config.attrs = const_cast<CUlaunchAttribute*>(pass.attributes.data());
  config.numAttrs = pass.attribute_count;
  return driver.cuLaunchKernelEx(&config, pass.function, parameters.data(), nullptr);
}

}  // namespace kiln::jit

#include "jit/tensor_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>

#include "cuda/device.hpp"
#include "jit/launch_form.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

CUtensorMapDataType tensor_map_type(manifest::DType type) noexcept {
  switch (type) {
    case manifest::DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case manifest::DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case manifest::DType::f32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case manifest::DType::f64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case manifest::DType::i32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case manifest::DType::i64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
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

struct TensorMapShape {
  std::array<std::uint64_t, manifest::max_tensor_map_rank> dimensions{};
  std::array<std::uint64_t, manifest::max_tensor_map_rank> stride_bytes{};  // without the innermost dimension's
  std::array<std::uint32_t, manifest::max_tensor_map_rank> box{};
  std::array<std::uint32_t, manifest::max_tensor_map_rank> element_strides{1, 1, 1, 1, 1};
};

/// How much L2 brings for a request. Boxes whose rows begin anywhere in a line of 128 bytes ask for more lines, and by
/// 256 bytes L2 answers them more slowly: attention by heads of 72 takes an eighth longer.
CUtensorMapL2promotion tensor_map_promotion(const TensorMapShape& shape) {
  const bool by_lines = std::all_of(shape.stride_bytes.begin(), shape.stride_bytes.end(),
                                    [](std::uint64_t stride) { return stride % 128 == 0; });
  return by_lines ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
}

constexpr std::int64_t unit = 16;  // bytes, of which addresses, strides and boxes are multiples

[[noreturn]] void refuse(const std::string& kernel, const LoadedArgument& argument, const std::string& what) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: the TMA descriptor of '{}': {}", kernel, argument.tensor, what));
}

/// Returns the elements from the first to the last that shape and strides reach, both included. Nothing when 64 bits
/// cannot hold it.
std::optional<std::int64_t> reach_of(std::span<const manifest::Expression> shape,
                                     std::span<const manifest::Expression> strides,
                                     std::span<const std::int64_t> frame) {
  std::int64_t reach = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const manifest::Value size = shape[i].evaluate(frame), stride = strides[i].evaluate(frame);
    std::int64_t more = 0;
    if (!size.ok() || !stride.ok() || __builtin_mul_overflow(size.number - 1, stride.number, &more) ||
        __builtin_add_overflow(reach, more, &reach))
      return std::nullopt;
  }
  return reach;
}

/// The view must lie within the tensor. The descriptor of a tensor's own shape and strides does.
void check_within(const LoadedArgument& argument, std::span<const std::int64_t> frame, const std::string& kernel) {
  const auto tensor = reach_of(argument.tensor_shape, argument.tensor_strides, frame);
  const auto view = reach_of(argument.shape, argument.strides, frame);
  if (argument.tensor_shape.empty() || !tensor || (view && *view <= *tensor)) return;
  refuse(kernel, argument,
         fmt::format("its view reaches {} elements at these sizes, and '{}' has {}; make 'shape' or 'strides' smaller, "
                     "or say unbounded = true for a view whose addresses wrap around",
                     view ? fmt::to_string(*view) : "more than 2^63", argument.tensor, *tensor));
}

void check_box(const LoadedArgument& argument, std::int64_t innermost, const std::string& kernel) {
  const std::int64_t bytes = innermost * size_of(argument.dtype);
  if (bytes % unit != 0)
    refuse(kernel, argument, fmt::format("the box's rows have {} bytes, not a multiple of {}", bytes, unit));
  if (argument.swizzle != 0 && bytes > argument.swizzle)
    refuse(kernel, argument,
           fmt::format("the box's rows have {} bytes, more than the swizzle's {}", bytes, argument.swizzle));
}

/// Manifests list dimensions outermost first, the driver innermost first.
TensorMapShape tensor_map_shape(const LoadedArgument& argument, std::span<const std::int64_t> frame,
                                const std::string& kernel) {
  TensorMapShape result;
  const std::size_t rank = argument.shape.size();
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t from = rank - 1 - i;
    result.dimensions[i] = static_cast<std::uint64_t>(
        size_or_throw(argument.shape[from], frame, 1, manifest::most_tensor_map_size, kernel, "a TMA dimension"));
    result.box[i] = static_cast<std::uint32_t>(
        size_or_throw(argument.box[from], frame, 1, manifest::most_tensor_map_box, kernel, "a TMA box"));
    const std::int64_t stride =
        size_or_throw(argument.strides[from], frame, 1, manifest::most_tensor_map_stride, kernel, "a TMA stride");
    if (i == 0) {
      if (stride != 1) refuse(kernel, argument, fmt::format("its innermost stride is {}, and must be 1", stride));
      continue;
    }
    const std::int64_t bytes = stride * size_of(argument.dtype);
    if (bytes % unit != 0)
      refuse(kernel, argument,
             fmt::format("the stride '{}' is {} bytes at these sizes, not a multiple of {}",
                         argument.strides[from].text(), bytes, unit));
    result.stride_bytes[i - 1] = static_cast<std::uint64_t>(bytes);
  }
  check_box(argument, result.box[0], kernel);
  check_within(argument, frame, kernel);
  return result;
}

}  // namespace

std::int64_t size_or_throw(const manifest::Expression& expression, std::span<const std::int64_t> frame,
                           std::int64_t minimum, std::int64_t maximum, const std::string& kernel, const char* what) {
  const manifest::Value value = expression.evaluate(frame);
  if (value.ok() && value.number >= minimum && value.number <= maximum) return value.number;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{}: {} = {} is {} at these sizes; it must lie between {} and {}", kernel, what, expression.text(),
                  value.ok() ? fmt::to_string(value.number) : std::string(to_string(value.status)), minimum, maximum));
}

TensorMapCache::~TensorMapCache() = default;

const CUtensorMap* TensorMapCache::keep(const TensorMapForm& form, const void* address,
                                        std::span<const std::int64_t> frame, const CUtensorMap& map) {
  const unsigned thread = thread_number();
  if (form.key == TensorMapForm::Key::none || thread == shared_thread_number) return nullptr;
  auto& own = own_[thread];
  if (own == nullptr) own.reset(new (std::nothrow) Entry[descriptors_ * Entry::sets * Entry::ways]());
  if (own == nullptr) return nullptr;  // out of memory: the launch uses the descriptor in its frame
  const auto key = Entry::key_of<TensorMapForm::most_slots>(form, address, frame);
  const auto compared = std::span<const std::uint64_t>(key).first(1 + static_cast<std::size_t>(form.key));
  Entry* const set = &own[Entry::set_of(form, compared)];
  Entry& entry = set[1].kept_as < set[0].kept_as ? set[1] : set[0];
  entry.kept_as = 1 + std::max(set[0].kept_as, set[1].kept_as);
  entry.key = key;
  entry.map = map;
  return &entry.map;
}

void make_tensor_map(const LoadedArgument& argument, const void* address, std::span<const std::int64_t> frame,
                     const std::string& kernel, CUtensorMap& map) {
  const TensorMapShape shape = tensor_map_shape(argument, frame, kernel);
  if (const auto number = reinterpret_cast<std::uintptr_t>(address); number % unit != 0)
    refuse(kernel, argument, fmt::format("the address {:#x} is not a multiple of {} bytes", number, unit));
  cuda::check(cuda::Driver::get().cuTensorMapEncodeTiled(
                  &map, tensor_map_type(argument.dtype), static_cast<std::uint32_t>(argument.shape.size()),
                  const_cast<void*>(address), shape.dimensions.data(), shape.stride_bytes.data(), shape.box.data(),
                  shape.element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, tensor_map_swizzle(argument.swizzle),
                  tensor_map_promotion(shape), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              "cuTensorMapEncodeTiled");
}

}  // namespace kiln::jit

#include "jit/tensor_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

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
  std::array<std::uint64_t, manifest::max_rank> dimensions{};
  std::array<std::uint64_t, manifest::max_rank> stride_bytes{};  // without the innermost dimension's
  std::array<std::uint32_t, manifest::max_rank> box{};
  std::array<std::uint32_t, manifest::max_rank> element_strides{1, 1, 1, 1};
};

/// Manifests list dimensions outermost first, the driver innermost first.
TensorMapShape tensor_map_shape(const LoadedArgument& argument, std::span<const std::int64_t> frame,
                                const std::string& kernel) {
  TensorMapShape result;
  const std::size_t rank = argument.shape.size();
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t from = rank - 1 - i;
    result.dimensions[i] = static_cast<std::uint64_t>(
        size_or_throw(argument.shape[from], frame, 1, std::int64_t{1} << 32, kernel, "a TMA dimension"));
    result.box[i] = static_cast<std::uint32_t>(size_or_throw(argument.box[from], frame, 1, 256, kernel, "a TMA box"));
    const std::int64_t stride =
        size_or_throw(argument.strides[from], frame, 1, std::int64_t{1} << 36, kernel, "a TMA stride");
    if (i == 0 && stride != 1)
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: TMA needs an innermost stride of 1, found {}", kernel, stride));
    if (i > 0) result.stride_bytes[i - 1] = static_cast<std::uint64_t>(stride * size_of(argument.dtype));
  }
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
  cuda::check(cuda::Driver::get().cuTensorMapEncodeTiled(
                  &map, tensor_map_type(argument.dtype), static_cast<std::uint32_t>(argument.shape.size()),
                  const_cast<void*>(address), shape.dimensions.data(), shape.stride_bytes.data(), shape.box.data(),
                  shape.element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, tensor_map_swizzle(argument.swizzle),
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              "cuTensorMapEncodeTiled (is the address 16-byte aligned and each stride a multiple of 16 bytes?)");
}

}  // namespace kiln::jit

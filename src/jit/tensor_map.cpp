#include "jit/tensor_map.hpp"

#include <fmt/format.h>

#include "cuda/device.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

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

struct TensorMapShape {
  std::array<std::uint64_t, spec::max_rank> dimensions{};
  std::array<std::uint64_t, spec::max_rank> stride_bytes{};  // of all but the innermost
  std::array<std::uint32_t, spec::max_rank> box{};
  std::array<std::uint32_t, spec::max_rank> element_strides{1, 1, 1, 1};
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

std::int64_t size_or_throw(const spec::Expression& expression, std::span<const std::int64_t> frame,
                           std::int64_t minimum, std::int64_t maximum, const std::string& kernel, const char* what) {
  const spec::Value value = expression.evaluate(frame);
  if (value.ok() && value.number >= minimum && value.number <= maximum) return value.number;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{}: {} = {} is {} at these sizes; it must lie between {} and {}", kernel, what, expression.text(),
                  value.ok() ? fmt::to_string(value.number) : std::string(to_string(value.status)), minimum, maximum));
}

bool TensorMapCache::read(const Entry& entry, const Key& key, CUtensorMap& map) const noexcept {
  const std::uint64_t version = entry.version.load(std::memory_order_acquire);
  if (version % 2 != 0 || version == 0) return false;
  std::uint64_t differing = 0;
  for (std::size_t i = 0; i <= form_.axes; ++i)
    differing |= entry.key[i].load(std::memory_order_acquire) ^ key.words[i];
  if (differing != 0) return false;
  for (std::size_t i = 0; i < entry.map.size(); ++i) map.opaque[i] = entry.map[i].load(std::memory_order_acquire);
  return entry.version.load(std::memory_order_relaxed) == version;
}

void TensorMapCache::keep(const Key& key, const CUtensorMap& map) noexcept {
  Entry* const set = &entries_[key.hash % sets * ways];
  Entry& entry =
      set[1].version.load(std::memory_order_relaxed) < set[0].version.load(std::memory_order_relaxed) ? set[1] : set[0];
  std::uint64_t version = entry.version.load(std::memory_order_relaxed);
  if (version % 2 != 0 || !entry.version.compare_exchange_strong(version, version + 1, std::memory_order_acquire))
    return;
  for (std::size_t i = 0; i <= form_.axes; ++i) entry.key[i].store(key.words[i], std::memory_order_release);
  for (std::size_t i = 0; i < entry.map.size(); ++i) entry.map[i].store(map.opaque[i], std::memory_order_release);
  entry.version.store(version + 2, std::memory_order_release);
}

TensorMaps::TensorMaps(const LoadedArgument& argument, const std::vector<int>& slots)
    : argument_(&argument), slots_(slots.begin(), slots.end()) {
  if (1 + slots_.size() <= TensorMapCache::most_words) cache_ = std::make_unique<TensorMapCache>(1 + slots_.size());
}

void TensorMaps::make(const void* address, std::span<const std::int64_t> frame, const std::string& kernel,
                      CUtensorMap& map) const {
  const TensorMapShape shape = tensor_map_shape(*argument_, frame, kernel);
  cuda::check(cuda::Driver::get().cuTensorMapEncodeTiled(
                  &map, tensor_map_type(argument_->dtype), static_cast<std::uint32_t>(argument_->shape.size()),
                  const_cast<void*>(address), shape.dimensions.data(), shape.stride_bytes.data(), shape.box.data(),
                  shape.element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, tensor_map_swizzle(argument_->swizzle),
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              "cuTensorMapEncodeTiled (is the address 16-byte aligned and each stride a multiple of 16 bytes?)");
  if (cache_ != nullptr) cache_->keep(key_of(address, frame), map);
}

}  // namespace kiln::jit

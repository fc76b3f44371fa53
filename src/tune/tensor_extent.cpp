#include "tune/tensor_extent.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::tune {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 46;

std::int64_t number(const manifest::Op& op, const manifest::Tensor& tensor, const manifest::Expression& expression,
                    std::span<const std::int64_t> frame) {
  const manifest::Value value = expression.evaluate(frame);
  if (value.ok() && value.number >= 0) return value.number;
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: tensor '{}': {} is {} at these sizes", op.name, tensor.name, expression.text(),
                          value.ok() ? fmt::to_string(value.number) : std::string(to_string(value.status))));
}

}  // namespace

std::int64_t TensorExtent::count() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

std::int64_t part_stride(const manifest::Op& op, const manifest::Tensor& tensor, const TensorExtent& extent,
                         std::int64_t world) {
  std::int64_t stride = extent.elements, all = 0;
  bool fits = true;
  for (std::size_t i = 0; i < extent.shape.size(); ++i) {
    std::int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(extent.shape[i], extent.strides[i], &reach);
    stride = std::max(stride, reach);
  }
  if (!fits || __builtin_mul_overflow(stride, world, &all) || all > most_bytes / size_of(extent.type))
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: the parts of {} ranks of tensor '{}' are larger than {} bytes at these sizes", op.name,
                            world, tensor.name, most_bytes));
  return stride;
}

TensorExtent extent_of(const manifest::Op& op, const manifest::Tensor& tensor, std::span<const std::int64_t> frame) {
  TensorExtent extent;
  extent.type = op.dtype_of(tensor, frame);
  const std::int64_t most_elements = most_bytes / size_of(extent.type);
  extent.elements = 1;
  std::int64_t count = 1;  // also bounded: with strides of 0 a tensor has more elements than memory
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    extent.shape.push_back(number(op, tensor, tensor.shape[i], frame));
    extent.strides.push_back(number(op, tensor, tensor.strides[i], frame));
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(std::max<std::int64_t>(extent.shape[i] - 1, 0), extent.strides[i], &reach) ||
        __builtin_add_overflow(extent.elements, reach, &extent.elements) || extent.elements > most_elements ||
        __builtin_mul_overflow(count, extent.shape[i], &count) || count > most_elements)
      throw Error(ErrorKind::bad_input, fmt::format("{}: tensor '{}' is larger than {} bytes at these sizes", op.name,
                                                    tensor.name, most_bytes));
  }
  if (count == 0) extent.elements = 0;
  return extent;
}

}  // namespace kiln::tune

// The operations on 64-bit integers, with overflow detected. Inline, because the hit path evaluates expressions.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "manifest/expression_tree.hpp"

namespace kiln::manifest {

inline Value apply(Operation operation, std::int64_t left, std::int64_t right) noexcept;

namespace arithmetic {

inline Value failed(Status status) noexcept { return {0, status}; }

inline Value quotient(Operation operation, std::int64_t left, std::int64_t right) noexcept {
  if (right == 0) return failed(Status::division_by_zero);
  if (left == std::numeric_limits<std::int64_t>::min() && right == -1) return failed(Status::overflow);
  return {operation == Operation::divide ? left / right : left % right};
}

// For sizes: negative operands are refused, because their rounding would be ambiguous.
inline Value rounded(Operation operation, std::int64_t size, std::int64_t step) noexcept {
  if (step == 0) return failed(Status::division_by_zero);
  if (size < 0 || step < 0) return failed(Status::negative_argument);
  const std::int64_t count = size / step + (size % step != 0 ? 1 : 0);
  return operation == Operation::ceil_div ? Value{count} : apply(Operation::multiply, count, step);
}

inline Value pow2_ceil(std::int64_t size) noexcept {
  if (size < 0) return failed(Status::negative_argument);
  if (size > std::int64_t{1} << 62) return failed(Status::overflow);
  return {static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)))};
}

}  // namespace arithmetic

inline Value apply(Operation operation, std::int64_t operand) noexcept {
  switch (operation) {
    case Operation::negate: return apply(Operation::subtract, 0, operand);
    case Operation::absolute: return operand < 0 ? apply(Operation::subtract, 0, operand) : Value{operand};
    case Operation::logical_not: return {operand == 0 ? 1 : 0};
    case Operation::pow2_ceil: return arithmetic::pow2_ceil(operand);
    case Operation::is_pow2: return {operand > 0 && std::has_single_bit(static_cast<std::uint64_t>(operand)) ? 1 : 0};
    case Operation::log2:
      if (operand <= 0) return arithmetic::failed(Status::negative_argument);
      return {static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(operand))) - 1};
    default: return {operand};
  }
}

inline Value apply(Operation operation, std::int64_t left, std::int64_t right) noexcept {
  std::int64_t result = 0;
  switch (operation) {
    case Operation::add:
      return __builtin_add_overflow(left, right, &result) ? arithmetic::failed(Status::overflow) : Value{result};
    case Operation::subtract:
      return __builtin_sub_overflow(left, right, &result) ? arithmetic::failed(Status::overflow) : Value{result};
    case Operation::multiply:
      return __builtin_mul_overflow(left, right, &result) ? arithmetic::failed(Status::overflow) : Value{result};
    case Operation::divide:
    case Operation::remainder: return arithmetic::quotient(operation, left, right);
    case Operation::less: return {left < right};
    case Operation::less_equal: return {left <= right};
    case Operation::greater: return {left > right};
    case Operation::greater_equal: return {left >= right};
    case Operation::equal: return {left == right};
    case Operation::not_equal: return {left != right};
    case Operation::minimum: return {left < right ? left : right};
    case Operation::maximum: return {left > right ? left : right};
    case Operation::ceil_div:
    case Operation::round_up: return arithmetic::rounded(operation, left, right);
    default: return {left};
  }
}

}  // namespace kiln::manifest

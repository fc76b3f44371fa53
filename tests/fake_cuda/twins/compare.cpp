// templates/internal/compare.cuh: mark_unwritten<R>(wanted, count), compare_squares<R>(wanted, shape, strides, result) and
// compare_outputs<T, R>(got, wanted, shape, strides, relative, absolute, sampled, result).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "twins/elements.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

struct Result {
  double wanted_squares;
  double error_squares;
  double largest_error;
  unsigned long long mismatches;
  unsigned long long unwritten;
  unsigned long long counted;
  unsigned long long first_mismatch;
};

/// Shape and strides, outermost first: eight parameters from `first` on.
struct Strided {
  std::array<std::int64_t, 4> shape, strides;

  Strided(const Invocation& call, std::size_t first) {
    for (std::size_t i = 0; i < 4; ++i) {
      shape[i] = call.integer(first + i);
      strides[i] = call.integer(first + 4 + i);
    }
  }
  [[nodiscard]] std::int64_t count() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  /// Elements from the first to the last, both included.
  [[nodiscard]] std::int64_t extent() const {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < 4; ++i) last += (shape[i] - 1) * strides[i];
    return last + 1;
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    std::int64_t index = 0;
    for (std::int64_t a = 0; a < shape[0]; ++a) {
      for (std::int64_t b = 0; b < shape[1]; ++b) {
        for (std::int64_t c = 0; c < shape[2]; ++c) {
          for (std::int64_t d = 0; d < shape[3]; ++d) {
            visit(index++, a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
          }
        }
      }
    }
  }
};

constexpr std::uint32_t unwritten_word = 0xfffd1e57;

/// Sets every word of a floating value to the mark. Integers have none.
template <typename R>
void mark(R& value) {
  if constexpr (std::is_floating_point_v<R>)
    for (std::size_t i = 0; i < sizeof value; i += sizeof unwritten_word)
      std::memcpy(reinterpret_cast<std::byte*>(&value) + i, &unwritten_word, sizeof unwritten_word);
}
template <typename R>
bool is_marked(const R& value) {
  if constexpr (!std::is_floating_point_v<R>) return false;
  R marked{};
  mark(marked);
  return std::memcmp(&value, &marked, sizeof value) == 0;
}

double error_of(double got, double wanted) {
  if (got == wanted || (std::isnan(got) && std::isnan(wanted))) return 0;
  const double error = std::fabs(got - wanted);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

}  // namespace

Traffic mark_unwritten(const Invocation& call) {
  return with_element(call.type_argument(0), [&]<typename R>(R) {
    const std::int64_t count = call.integer(1);
    R* wanted = call.required<R>(0, count);
    std::for_each_n(wanted, count, [](R& value) { mark(value); });
    return Traffic{static_cast<double>(count) * sizeof(R), 0, 1};
  });
}

Traffic compare_squares(const Invocation& call) {
  const Strided tensor(call, 1);
  auto* result = call.required<Result>(9, 1);
  return with_element(call.type_argument(0), [&]<typename R>(R) {
    const R* wanted = call.required<R>(0, tensor.extent());
    tensor.for_each([&](std::int64_t, std::int64_t offset) {
      const double value = to_double(wanted[offset]);
      if (std::isfinite(value) && value != 0) {
        result->wanted_squares += value * value;
        ++result->counted;
      }
      if (is_marked(wanted[offset])) ++result->unwritten;
    });
    return Traffic{static_cast<double>(tensor.count()) * sizeof(R), 0, 1};
  });
}

Traffic compare_outputs(const Invocation& call) {
  const Strided tensor(call, 2);
  const auto relative = call.value<double>(10);
  const auto absolute = call.value<double>(11);
  const bool sampled = call.value<int>(12) != 0;
  auto* result = call.required<Result>(13, 1);
  const auto floor_of = [&](double elements) {
    return absolute * std::sqrt(result->wanted_squares / std::max(elements, 1.0));
  };
  const double floor = floor_of(static_cast<double>(result->counted));
  const double floor_at_zero = floor_of(static_cast<double>(tensor.count()) - static_cast<double>(result->unwritten));
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    return with_element(call.type_argument(1), [&]<typename R>(R) {
      const T* got = call.required<T>(0, tensor.extent());
      const R* wanted = call.required<R>(1, tensor.extent());
      tensor.for_each([&](std::int64_t index, std::int64_t offset) {
        const double want = to_double(wanted[offset]);
        const bool is_left = is_marked(wanted[offset]);
        if (is_left && sampled && std::isfinite(to_double(got[offset]))) return;
        const double error = is_left ? std::numeric_limits<double>::infinity() : error_of(to_double(got[offset]), want);
        result->error_squares += error * error;
        result->largest_error = std::max(result->largest_error, error);
        if (error == 0 ||
            (std::isfinite(want) && error <= relative * std::fabs(want) + (want == 0 ? floor_at_zero : floor)))
          return;
        ++result->mismatches;
        result->first_mismatch = std::min(result->first_mismatch, static_cast<unsigned long long>(index));
      });
      return Traffic{static_cast<double>(tensor.count()) * (sizeof(T) + sizeof(R)), 0, 1};
    });
  });
}

}  // namespace fake_cuda

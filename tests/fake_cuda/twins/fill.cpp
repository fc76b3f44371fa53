// templates/internal/fill.cuh: fill_values<T>(out, count, seed, kind, scale); and what flushes L2.
#include <algorithm>
#include <cmath>

#include "twins/elements.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

enum Kind { normal, uniform, ones, zeros, index, offsets };

/// Independent of the device's own bits: only the distributions are the same.
std::uint64_t hash(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

double real(std::uint64_t bits, int kind, std::int64_t i) {
  const double first = (static_cast<double>(bits >> 40) + 1) * 0x1p-24;
  const double second = static_cast<double>(bits & 0xffffff) * 0x1p-24;
  switch (kind) {
    case normal: return std::sqrt(-2 * std::log(first)) * std::cos(2 * M_PI * second);
    case uniform: return 2 * first - 1;
    case ones: return 1;
    case index: return static_cast<double>(i);
    default: return 0;
  }
}

/// Rising from 0 to `last`.
double offset(std::uint64_t bits, std::int64_t i, std::int64_t count, double last) {
  if (i == 0) return 0;
  if (i == count - 1) return last;
  return last * (static_cast<double>(i) + real(bits, uniform, i) / 2) / static_cast<double>(count - 1);
}

/// How many whole numbers from 0 up a type holds exactly.
template <typename T>
constexpr std::int64_t exact_count() {
  if (std::is_same_v<T, Bf16> || std::is_same_v<T, unsigned char>) return 256;
  if (std::is_same_v<T, F16>) return 2048;
  if (std::is_same_v<T, float>) return 1 << 24;
  if (std::is_same_v<T, E4m3>) return 16;
  if (std::is_same_v<T, E5m2>) return 8;
  if (std::is_same_v<T, signed char>) return 128;
  return INT64_MAX;
}

}  // namespace

Traffic fill_values(const Invocation& call) {
  const std::int64_t count = call.integer(1);
  const auto seed = call.value<unsigned long long>(2);
  const int kind = call.value<int>(3);
  const double scale = call.value<double>(4);
  return with_element(call.type_argument(0), [&]<typename T>(T) {
    T* out = call.required<T>(0, count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t bits = hash(seed, static_cast<std::uint64_t>(i));
      const std::int64_t place = i % exact_count<T>();
      if constexpr (std::is_integral_v<T>) {
        const int small = static_cast<int>(bits >> 60) - (std::is_signed_v<T> ? 8 : 0);
        out[i] = kind == offsets ? static_cast<T>(offset(bits, i, count, scale))
                                 : static_cast<T>(kind <= uniform ? small
                                                  : kind == ones  ? 1
                                                  : kind == zeros ? 0
                                                                  : place);
      } else {
        out[i] = from_double<T>(real(bits, kind, place) * scale);
      }
    }
    return Traffic{static_cast<double>(count) * sizeof(T), 0, 1};
  });
}

/// templates/internal/late_copy.cuh: copy_late(to, from, count, cycles).
Traffic copy_late(const Invocation& call) {
  const std::int64_t count = call.integer(2);
  std::copy_n(call.required<const std::int32_t>(1, count), count, call.required<std::int32_t>(0, count));
  return {2.0 * static_cast<double>(count) * sizeof(std::int32_t), 0, 1};
}

/// templates/internal/evict.cuh: evict_lines(data, count, sink).
Traffic evict_lines(const Invocation& call) {
  constexpr std::int64_t piece_words = 4;
  const std::int64_t words = call.integer(1) * piece_words;
  static_cast<void>(call.required<float>(0, words));
  return Traffic{static_cast<double>(words) * sizeof(float), 0, 1};
}

}  // namespace fake_cuda

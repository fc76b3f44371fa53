// An output against its reference, on the device. Before the reference runs, mark what it is to write, if that is floating:
//
//   mark_unwritten<R>(R* wanted, long long count)
//
// Afterwards launch both of these in order, over one compare_result:
//
//   compare_squares<R>(const R* wanted, long long s0, s1, s2, s3, long long t0, t1, t2, t3, compare_result* result)
//   compare_outputs<T, R>(const T* got, const R* wanted, long long s0, s1, s2, s3, long long t0, t1, t2, t3,
//                         double relative, double absolute, int sampled, compare_result* result)
//
// An element that still has its mark is a mismatch, unless `sampled`: then it must only be finite in `got`. The mark is a NaN with a payload
// that no arithmetic gives. Integers have none.
//
// s is the shape, outermost first (1 where a dimension is missing), t the strides in elements, the same for both
// tensors. Blocks of a multiple of 32 threads, up to 1024, any grid in x: threads stride over the elements. The host
// sets `result` to zeros, but first_mismatch to all ones, before the first kernel. Seven fields of 8 bytes, 56 in all.
#pragma once

#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln {

struct compare_result {
  double wanted_squares;          // sum of wanted^2
  double error_squares;           // sum of (got - wanted)^2
  double largest_error;           // largest |got - wanted|; infinite where one of the two only is NaN or infinite
  unsigned long long mismatches;  // elements with no |got - wanted| <= relative * |wanted| + absolute * rms
  unsigned long long unwritten;   // elements that the reference left
  unsigned long long counted;     // elements that are finite and not 0; their rms judges them, that of all judges zeros
  unsigned long long first_mismatch;  // the lowest mismatch, counted in row-major order
};

namespace detail {

struct strided {
  long long s0, s1, s2, s3, t0, t1, t2, t3;

  __device__ __forceinline__ long long count() const { return s0 * s1 * s2 * s3; }
  __device__ __forceinline__ long long offset(long long index) const {
    const long long i3 = index % s3, above3 = index / s3;
    const long long i2 = above3 % s2, above2 = above3 / s2;
    return above2 / s1 * t0 + above2 % s1 * t1 + i2 * t2 + i3 * t3;
  }
  /// visit(index, offset) for this thread's elements.
  template <typename Visit>
  __device__ __forceinline__ void for_each(Visit visit) const {
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count(); i += threads) {
      visit(i, offset(i));
    }
  }
};

__device__ __forceinline__ bool is_finite(double value) { return value - value == 0; }

// A quiet NaN in f32, and twice in a row one in f64. Poison has another payload, so that a reference which copies poison is seen to write.
inline constexpr unsigned unwritten_word = 0xfffd1e57u;
template <typename R>
struct mark {
  static __device__ __forceinline__ void set(R&) {}
  static __device__ __forceinline__ bool is(const R&) { return false; }
};
template <>
struct mark<float> {
  static __device__ __forceinline__ void set(float& value) { value = __uint_as_float(unwritten_word); }
  static __device__ __forceinline__ bool is(const float& value) { return __float_as_uint(value) == unwritten_word; }
};
template <>
struct mark<double> {
  static constexpr long long bits = static_cast<long long>(0x100000001ull * unwritten_word);
  static __device__ __forceinline__ void set(double& value) { value = __longlong_as_double(bits); }
  static __device__ __forceinline__ bool is(const double& value) { return __double_as_longlong(value) == bits; }
};

/// 0 where the two are the same, NaN and infinities included; never NaN.
__device__ __forceinline__ double error_of(double got, double wanted) {
  if (got == wanted || (got != got && wanted != wanted)) return 0;
  const double error = fabs(got - wanted);
  return error == error ? error : static_cast<double>(infinity());
}

}  // namespace detail

template <typename R>
__global__ __launch_bounds__(1024) void mark_unwritten(R* wanted, long long count) {
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads)
    detail::mark<R>::set(wanted[i]);
}

template <typename R>
__global__ __launch_bounds__(1024) void compare_squares(const R* wanted, long long s0, long long s1, long long s2,
                                                        long long s3, long long t0, long long t1, long long t2,
                                                        long long t3, compare_result* result) {
  double squares = 0;
  unsigned long long unwritten = 0, counted = 0;
  detail::strided{s0, s1, s2, s3, t0, t1, t2, t3}.for_each([&](long long, long long offset) {
    const double value = to_double(wanted[offset]);
    if (detail::is_finite(value) && value != 0) squares += value * value, ++counted;
    if (detail::mark<R>::is(wanted[offset])) ++unwritten;
  });
  squares = warp_reduce(squares, add{});
  unwritten = warp_reduce(unwritten, add{});
  counted = warp_reduce(counted, add{});
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(&result->wanted_squares, squares);
  atomicAdd(&result->counted, counted);
  if (unwritten != 0) atomicAdd(&result->unwritten, unwritten);
}

template <typename T, typename R>
__global__ __launch_bounds__(1024) void compare_outputs(const T* got, const R* wanted, long long s0, long long s1,
                                                        long long s2, long long s3, long long t0, long long t1,
                                                        long long t2, long long t3, double relative, double absolute,
                                                        int sampled, compare_result* result) {
  const detail::strided shape{s0, s1, s2, s3, t0, t1, t2, t3};
  const auto floor_of = [&](long long elements) {
    return absolute * sqrt(result->wanted_squares / static_cast<double>(elements > 0 ? elements : 1));
  };
  const double floor = floor_of(static_cast<long long>(result->counted));
  const double floor_at_zero = floor_of(shape.count() - static_cast<long long>(result->unwritten));
  double squares = 0;
  double largest = 0;
  unsigned long long mismatches = 0;
  unsigned long long first = ~0ull;
  shape.for_each([&](long long index, long long offset) {
    const double want = to_double(wanted[offset]);
    const bool is_left = detail::mark<R>::is(wanted[offset]);
    if (is_left && sampled != 0 && detail::is_finite(to_double(got[offset]))) return;
    const double error = is_left ? static_cast<double>(infinity()) : detail::error_of(to_double(got[offset]), want);
    squares += error * error;
    largest = error > largest ? error : largest;
    if (error == 0 || (detail::is_finite(want) && error <= relative * fabs(want) + (want == 0 ? floor_at_zero : floor)))
      return;
    ++mismatches;
    first = min(first, static_cast<unsigned long long>(index));
  });

  squares = warp_reduce(squares, add{});
  largest = warp_reduce(largest, [](double a, double b) { return a > b ? a : b; });
  mismatches = warp_reduce(mismatches, add{});
  first = warp_reduce(first, [](unsigned long long a, unsigned long long b) { return min(a, b); });
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(&result->error_squares, squares);
  // Doubles that are not negative order as their bits do.
  atomicMax(reinterpret_cast<unsigned long long*>(&result->largest_error), __double_as_longlong(largest));
  if (mismatches == 0) return;
  atomicAdd(&result->mismatches, mismatches);
  atomicMin(&result->first_mismatch, first);
}

}  // namespace kiln

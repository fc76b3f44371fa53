// From a product to y, the same for every kernel that multiplies:
//   z = scale * scales * product + bias; z = activation(z); z += residual; z += y; y = z / y_scale. All is in f32 and
// rounded once. A step is left out unless the op's choices ask for it. What is not asked for takes no register and no
// instruction; bias and y_scale are null where the caller gives none.
#pragma once

#include "common/gemm/choices.cuh"
#include "common/quantise.cuh"
#include "common/types.cuh"
#include "common/vector.cuh"

namespace kiln::gemm {

__device__ constexpr int least_of(int a, int b) { return a < b ? a : b; }

/// What is equal in all rows of `width` neighbouring columns: load it once where a thread meets them again.
template <class Config, int width>
struct column_terms {
  static constexpr bool scaled = Config::scaling == Scaling::row;
  float shift[width];                // bias
  float factor[scaled ? width : 1];  // of the column's scale
};

/// Config is an Ending. Accesses are as wide as `alignment` elements, a power of two, allow, up to 16 bytes.
/// REQUIRES: each row of y and of the residual begins at a multiple of `alignment`, by address and stride.
///
/// A kernel of one product with m rows and n columns fills it in. It calls `store` for what it holds of any row, in any
/// order. Scales are x's of a row and w's of a column as `scaling` says; those of blocks of k are the main loop's,
/// before.
template <class Config, int alignment = 1>
struct epilogue {
  using Out = typename Config::out;
  static constexpr int addends_count = (Config::residual == Residual::add) + (Config::accumulate == Accumulate::yes);
  static constexpr bool adds = addends_count > 0;

  Out* y;
  const Out* bias;      // [n]
  const Out* residual;  // like y
  const float *x_scale, *w_scale, *y_scale;
  long long y_stride, residual_stride;  // elements between rows
  long long x_scale_stride, w_scale_stride;
  float scale;
  int rows;           // m
  long long columns;  // n: of the product, also where y has half as many

  /// Neighbours of y that `width` columns of the product make.
  template <int width>
  static constexpr int results = width / Config::joined;

  /// For columns that begin at a multiple of `width`; those past the last are left at 0.
  template <int width>
  __device__ __forceinline__ column_terms<Config, width> terms(long long column) const {
    column_terms<Config, width> made = {};
    if (bias != nullptr) {
#pragma unroll
      for (int i = 0; i < width; ++i) {
        if (column + i < columns) made.shift[i] = to_float(bias[column + i]);
      }
    }
    if constexpr (column_terms<Config, width>::scaled) {
#pragma unroll
      for (int i = 0; i < width; ++i) {
        if (column + i < columns) made.factor[i] = w_scale[(column + i) * w_scale_stride];
      }
    }
    return made;
  }

  /// What is added after the activation, as it lies in memory: so that many may be on their way at once.
  template <int width>
  struct addends {
    packed<Out, results<width>> residual, held;
  };
  /// Loads what is added to columns that y has, if `whole`. Else those past its last are 0.
  template <int width, bool whole>
  __device__ __forceinline__ addends<width> load_addends(int row, long long column) const {
    addends<width> made = {};
    if constexpr (Config::residual == Residual::add)
      made.residual = load_results<results<width>, whole>(residual + row * residual_stride, column / Config::joined);
    if constexpr (Config::accumulate == Accumulate::yes)
      made.held = load_results<results<width>, whole>(y + row * y_stride, column / Config::joined);
    return made;
  }

  /// What y is to hold, but for the rounding: nothing may be done with those past the last column. The row is one of y's.
  template <int width>
  __device__ __forceinline__ vec<float, results<width>> finish(int row, long long column,
                                                               const column_terms<Config, width>& of,
                                                               const float (&sums)[width],
                                                               const addends<width>* ready = nullptr) const {
    static_assert(width % Config::joined == 0);
    float values[width];
    const float factor = row_factor(row);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if constexpr (column_terms<Config, width>::scaled) {
        values[i] = fmaf(factor * of.factor[i], sums[i], of.shift[i]);
      } else {
        values[i] = fmaf(factor, sums[i], of.shift[i]);
      }
    }
    vec<float, results<width>> ends;
#pragma unroll
    for (int i = 0; i < results<width>; ++i) {
      if constexpr (Config::activation == Activation::swiglu) {
        ends.at[i] = activate<Activation::silu>(values[2 * i]) * values[2 * i + 1];
      } else {
        ends.at[i] = activate<Config::activation>(values[i]);
      }
    }
    const long long first = column / Config::joined;
    if constexpr (Config::residual == Residual::add) {
      const vec<float, results<width>> added = ready != nullptr
                                                   ? to_floats<Out, results<width>>(ready->residual)
                                                   : read<results<width>>(residual + row * residual_stride, first);
#pragma unroll
      for (int i = 0; i < results<width>; ++i) ends.at[i] += added.at[i];
    }
    if constexpr (Config::accumulate == Accumulate::yes) {
      const vec<float, results<width>> held = ready != nullptr ? to_floats<Out, results<width>>(ready->held)
                                                               : read<results<width>>(y + row * y_stride, first);
      const float unit = y_unit();
#pragma unroll
      for (int i = 0; i < results<width>; ++i) ends.at[i] = fmaf(unit, held.at[i], ends.at[i]);
    }
    if constexpr (is_same<Out, e4m3>) {
      const float inverse = 1.0f / y_unit();
#pragma unroll
      for (int i = 0; i < results<width>; ++i) ends.at[i] *= inverse;
    }
    return ends;
  }

  /// The sums of `width` neighbouring columns, from a multiple of it on, of one row. Past the last row or column: nothing.
  template <int width>
  __device__ __forceinline__ void store(int row, long long column, const column_terms<Config, width>& of,
                                        const float (&sums)[width]) const {
    if (row >= rows || column >= columns) return;
    write<results<width>>(y + row * y_stride, column / Config::joined, finish<width>(row, column, of, sums));
  }
  template <int width>
  __device__ __forceinline__ void store(int row, long long column, const float (&sums)[width]) const {
    store<width>(row, column, terms<width>(column), sums);
  }

 private:
  __device__ __forceinline__ float row_factor(int row) const {
    if constexpr (Config::scaling == Scaling::tensor) return scale * (*x_scale * *w_scale);
    if constexpr (Config::scaling == Scaling::row) return scale * x_scale[row * x_scale_stride];
    return scale;
  }
  /// What one of y stands for.
  __device__ __forceinline__ float y_unit() const {
    if constexpr (is_same<Out, e4m3>) return y_scale == nullptr ? 1.0f : *y_scale;
    return 1.0f;
  }
  __device__ __forceinline__ long long results_a_row() const { return columns / Config::joined; }

  /// Elements of one access where `count` are neighbours.
  template <int count>
  static constexpr int access = least_of(least_of(count, alignment), 16 / static_cast<int>(sizeof(Out)));

  template <int count>
  __device__ __forceinline__ vec<float, count> read(const Out* row, long long first) const {
    vec<float, count> values = {};
    if (first + count <= results_a_row()) {
#pragma unroll
      for (int i = 0; i < count; i += access<count>) {
        const auto part = to_floats<Out, access<count>>(load_packed<access<count>>(row + first + i));
#pragma unroll
        for (int j = 0; j < access<count>; ++j) values.at[i + j] = part.at[j];
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (first + i < results_a_row()) values.at[i] = to_float(row[first + i]);
      }
    }
    return values;
  }

  template <int count, bool whole>
  __device__ __forceinline__ packed<Out, count> load_results(const Out* row, long long first) const {
    if constexpr (whole) return load_packed<count>(row + first);
    vec<Out, count> values = {};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (first + i < results_a_row()) values.at[i] = row[first + i];
    }
    return pack(values);
  }

  template <int count>
  __device__ __forceinline__ void write(Out* row, long long first, const vec<float, count>& values) const {
    if (first + count <= results_a_row()) {
#pragma unroll
      for (int i = 0; i < count; i += access<count>) {
        vec<float, access<count>> part;
#pragma unroll
        for (int j = 0; j < access<count>; ++j) part.at[j] = values.at[i + j];
        store_whole(row + first + i, part);
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (first + i < results_a_row()) row[first + i] = from_float<Out>(values.at[i]);
      }
    }
  }

  template <int count>
  static __device__ __forceinline__ void store_whole(Out* to, const vec<float, count>& values) {
    const packed<Out, count> word = rounded<count>(values);
    if constexpr (sizeof(word) == 16) {
      // A plain assignment of a uint4 that was put together here is split into four.
      __stwb(reinterpret_cast<uint4*>(to), __builtin_bit_cast(uint4, word));
    } else {
      store_packed<count>(to, word);
    }
  }
  template <int count>
  static __device__ __forceinline__ packed<Out, count> rounded(const vec<float, count>& values) {
    if constexpr (is_same<Out, e4m3>) {
      return quantise_packed<count>(values, 1.0f);  // two at a time
    } else {
      return from_floats<Out, count>(values);
    }
  }
};

/// Rows of y and of the residual begin at multiples of 16 bytes.
template <typename Config>
using AlignedEpilogue = epilogue<Config, 16 / sizeof(typename Config::out)>;

}  // namespace kiln::gemm

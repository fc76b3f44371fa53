// A row normalised: read with its residual, its statistics taken, scaled by weight and bias, stored or quantised.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/norm.cuh"

namespace kiln {

/// Blocks of 128 columns need chunks that begin with them, so that rows there have no front: unaligned, they are read by elements.
template <quantise_mode Quantise, int N, typename T>
__device__ __forceinline__ int norm_peel(const T* x, int cols) {
  return Quantise == quantise_mode::block ? 0 : peel_of<N>(x, cols);
}

/// What is normalised: x, or its sum with the residual. In two steps, so that whatever else a row needs can be asked for between them.
template <typename Share, residual_mode Residual>
struct norm_input {
  using T = typename Share::element;
  Share values;
  Share others;  // of the residual

  static __device__ __forceinline__ norm_input load(const norm_tensors<T>& row, int cols, int thread, int peel) {
    const T zero = from_float<T>(0);
    norm_input input;
    input.values = Share::load_beside(row.x, cols, thread, peel, zero);
    if constexpr (Residual == residual_mode::add)
      input.others = Share::load_beside(row.residual, cols, thread, peel, zero);
    return input;
  }
  /// Stores the sum, which may take the residual's place or x's.
  __device__ __forceinline__ Share summed(const norm_tensors<T>& row, int cols, int thread, int peel) const {
    if constexpr (Residual == residual_mode::none) return values;
    const Share sums = values.map(others, [](T a, T b) { return from_float<T>(to_float(a) + to_float(b)); });
    sums.store_row(row.sum, cols, thread, peel);
    return sums;
  }
};

/// Weight, and bias where there is one: the same columns as a share of the row.
template <norm_kind Kind, typename Share>
struct norm_affine {
  using T = typename Share::element;
  Share weights;
  Share biases;  // of layer_norm

  static __device__ __forceinline__ norm_affine load(const norm_tensors<T>& row, int cols, int thread, int peel) {
    const T zero = from_float<T>(0);
    norm_affine affine;
    affine.weights = Share::load_beside(row.weight, cols, thread, peel, zero);
    if constexpr (Kind == norm_kind::layer) {
      affine.biases =
          Share::load_beside(row.bias, row.bias != nullptr ? cols : 0, thread, row.bias != nullptr ? peel : 0, zero);
    }
    return affine;
  }
  __device__ __forceinline__ T bias_front() const { return Kind == norm_kind::layer ? biases.front : from_float<T>(0); }
  __device__ __forceinline__ vec<T, Share::n> bias(int item) const {
    if constexpr (Kind == norm_kind::layer) return unpack<T, Share::n>(biases.chunks[item]);
    return {};
  }
};

template <quantise_mode Quantise, typename T>
struct stored {
  using type = e4m3;
};
template <typename T>
struct stored<quantise_mode::none, T> {
  using type = T;
};

template <norm_kind Kind, typename T>
__device__ __forceinline__ float normed(const norm_statistics& of, T value, T weight, T bias) {
  if constexpr (Kind == norm_kind::layer) {
    return (to_float(value) - of.mean) * of.scale * to_float(weight) + to_float(bias);
  } else {
    return to_float(value) * of.scale * to_float(weight);
  }
}

/// Stores as y, or as y_quantised with the scale whose reciprocal is `inverse` or with scales of its own.
template <norm_kind Kind, quantise_mode Quantise, typename Share, typename T>
__device__ __forceinline__ void store_normed(const norm_tensors<T>& row, const Share& values,
                                             const norm_affine<Kind, Share>& affine, const norm_statistics& statistics,
                                             float inverse, int cols, int thread, int peel) {
  constexpr int n = Share::n;
  using Out = typename stored<Quantise, T>::type;
  typename Share::template of<Out> made;
  const float front = normed<Kind>(statistics, values.front, affine.weights.front, affine.bias_front());
  made.front = from_float<Out>(Quantise == quantise_mode::none ? front : front * inverse);
#pragma unroll
  for (int item = 0; item < Share::items; ++item) {
    const vec<T, n> value = unpack<T, n>(values.chunks[item]);
    const vec<T, n> weight = unpack<T, n>(affine.weights.chunks[item]);
    const vec<T, n> bias = affine.bias(item);
    vec<float, n> results;
#pragma unroll
    for (int i = 0; i < n; ++i) results.at[i] = normed<Kind>(statistics, value.at[i], weight.at[i], bias.at[i]);
    if constexpr (Quantise == quantise_mode::none) {
      made.chunks[item] = pack(results.template map<T>([](float result) { return from_float<T>(result); }));
    } else {
      if constexpr (Quantise == quantise_mode::block) {
        const block_scale own = shared_scale(results);
        const int first = Share::column(thread, peel, item);
        if (first % quantise_block == 0 && first < cols)
          row.y_block_scales[first / quantise_block * row.block_scale_stride] = own.scale;
        inverse = own.inverse;
      }
      made.chunks[item] = pack(quantise(results, inverse));
    }
  }
  if constexpr (Quantise == quantise_mode::none) {
    made.store_row(row.y, cols, thread, peel);
  } else {
    made.store_row(row.y_quantised, cols, thread, peel);
  }
}

template <quantise_mode Quantise, typename T>
__device__ __forceinline__ float given_inverse(const norm_tensors<T>& row) {
  return Quantise == quantise_mode::tensor ? 1.0f / *row.y_scale : 0.0f;
}

/// A row that its Threads threads hold in registers. cols is 0 for threads without a row, which take part in shuffles only.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, int Items, typename T>
__device__ __forceinline__ void norm_resident_row(const norm_tensors<T>& row, int cols, int thread, float epsilon,
                                                  float* scratch) {
  using share = row_share<T, Threads, N, Items>;
  const float inverse = given_inverse<Quantise>(row);
  const int peel = norm_peel<Quantise, N>(row.x, cols);
  const auto input = norm_input<share, Residual>::load(row, cols, thread, peel);
  const auto affine = norm_affine<Kind, share>::load(row, cols, thread, peel);
  launch_dependents();
  const share values = input.summed(row, cols, thread, peel);
  row_sum<Threads> sum{scratch};
  const norm_statistics statistics = statistics_of<Kind>(
      [&](auto measure) { return sum_within(values, cols, thread, peel, measure); }, sum, cols, epsilon);
  store_normed<Kind, Quantise>(row, values, affine, statistics, inverse, cols, thread, peel);
}

/// A row of any length by a block: read once for each of its statistics, and once to be scaled.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, typename T>
__device__ __forceinline__ void norm_streamed_row(const norm_tensors<T>& row, int cols, float epsilon, float* scratch) {
  constexpr int items = 2;
  constexpr int stride = Threads * N * items;
  using share = row_share<T, Threads, N, items>;
  const int thread = threadIdx.x;
  const float inverse = given_inverse<Quantise>(row);
  const int peel = norm_peel<Quantise, N>(row.x, cols);
  // Only the first piece has a front; it ends where the second begins, at the phase of its chunks.
  const auto peel_at = [&](int first) { return first == 0 ? peel : 0; };
  const auto after = [&](int first) { return first + peel_at(first) + stride; };

  norm_tensors<T> summed = row;  // whose x is what is normalised, once the first reading has stored it
  if constexpr (Residual == residual_mode::add) summed.x = row.sum;
  const auto piece_of = [&](int first) {
    return norm_input<share, residual_mode::none>::load(summed.from_column(first), cols - first, thread, peel_at(first))
        .values;
  };
  bool stored = Residual == residual_mode::none;
  const auto measured = [&](auto measure) {
    float total = 0;
    for (int first = 0; first < cols; first = after(first)) {
      share values;
      if (stored) {
        values = piece_of(first);
      } else {
        const auto piece = row.from_column(first);
        values = norm_input<share, Residual>::load(piece, cols - first, thread, peel_at(first))
                     .summed(piece, cols - first, thread, peel_at(first));
      }
      total += sum_within(values, cols - first, thread, peel_at(first), measure);
    }
    stored = true;
    return total;
  };
  row_sum<Threads> sum{scratch};
  const norm_statistics statistics = statistics_of<Kind>(measured, sum, cols, epsilon);
  launch_dependents();
  for (int first = 0; first < cols; first = after(first)) {
    const auto piece = summed.from_column(first);
    const share values = piece_of(first);
    const auto affine = norm_affine<Kind, share>::load(piece, cols - first, thread, peel_at(first));
    store_normed<Kind, Quantise>(piece, values, affine, statistics, inverse, cols - first, thread, peel_at(first));
  }
}

}  // namespace kiln

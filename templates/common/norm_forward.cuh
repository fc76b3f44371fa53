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

/// What statistics_of asks of a row in registers.
template <typename Share>
struct resident_measures {
  const Share& values;
  int cols, thread, peel;
  template <typename Measure>
  __device__ __forceinline__ float operator()(Measure measure) {
    return sum_within(values, cols, thread, peel, measure);
  }
};

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
  resident_measures<share> measured{values, cols, thread, peel};
  const norm_statistics statistics = statistics_of<Kind>(measured, sum, cols, epsilon);
  store_normed<Kind, Quantise>(row, values, affine, statistics, inverse, cols, thread, peel);
}

/// A row of any length in pieces, which are what a block's threads hold at once: read once for each of its statistics, the first of which
/// stores the sum with the residual, and once to be scaled.
template <residual_mode Residual, int Threads, int N, typename T>
struct streamed_row {
  static constexpr int items = 2;
  using share = row_share<T, Threads, N, items>;
  const norm_tensors<T>& row;
  int cols, peel;
  bool summed = Residual == residual_mode::none;

  // Only the first piece has a front; it ends where the second begins, at the phase of its chunks.
  __device__ __forceinline__ int peel_at(int first) const { return first == 0 ? peel : 0; }
  __device__ __forceinline__ int after(int first) const { return first + peel_at(first) + Threads * N * items; }

  /// With column `first` as the first, of what is normalised once it has been stored.
  __device__ __forceinline__ norm_tensors<T> tensors_at(int first) const {
    norm_tensors<T> tensors = row;
    if constexpr (Residual == residual_mode::add) tensors.x = row.sum;
    return tensors.from_column(first);
  }
  __device__ __forceinline__ share piece_at(int first) const {
    return norm_input<share, residual_mode::none>::load(tensors_at(first), cols - first, threadIdx.x, peel_at(first))
        .values;
  }

  template <typename Measure>
  __device__ __forceinline__ float operator()(Measure measure) {
    float total = 0;
    for (int first = 0; first < cols; first = after(first)) {
      share values;
      if (summed) {
        values = piece_at(first);
      } else {
        const auto from = row.from_column(first);
        values = norm_input<share, Residual>::load(from, cols - first, threadIdx.x, peel_at(first))
                     .summed(from, cols - first, threadIdx.x, peel_at(first));
      }
      total += sum_within(values, cols - first, threadIdx.x, peel_at(first), measure);
    }
    summed = true;
    return total;
  }
};

template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, typename T>
__device__ __forceinline__ void norm_streamed_row(const norm_tensors<T>& row, int cols, float epsilon, float* scratch) {
  using pieces = streamed_row<Residual, Threads, N, T>;
  using share = typename pieces::share;
  const float inverse = given_inverse<Quantise>(row);
  pieces whole{row, cols, norm_peel<Quantise, N>(row.x, cols)};
  row_sum<Threads> sum{scratch};
  const norm_statistics statistics = statistics_of<Kind>(whole, sum, cols, epsilon);
  launch_dependents();
  for (int first = 0; first < cols; first = whole.after(first)) {
    const int left = cols - first, peel = whole.peel_at(first), thread = threadIdx.x;
    const auto tensors = whole.tensors_at(first);
    const share values = whole.piece_at(first);
    const auto affine = norm_affine<Kind, share>::load(tensors, left, thread, peel);
    store_normed<Kind, Quantise>(tensors, values, affine, statistics, inverse, left, thread, peel);
  }
}

}  // namespace kiln

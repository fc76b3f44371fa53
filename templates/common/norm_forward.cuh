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
  return Quantise == quantise_mode::tensor ? reciprocal(*row.y_scale) : 0.0f;
}

/// A row of just Threads * N * Items columns with aligned accesses alone (is_whole). It never asks where the row ends,
/// which would be most of the instructions.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, int Items, typename T>
__device__ __forceinline__ void norm_whole_row(const norm_tensors<T>& row, int thread, float epsilon, float* scratch) {
  using chunk = words<T, N>;
  constexpr int cols = Threads * N * Items;
  constexpr float each = 1.0f / cols;
  chunk xs[Items], residuals[Items], weights[Items], biases[Items];
#pragma unroll
  for (int item = 0; item < Items; ++item) {
    const int column = (item * Threads + thread) * N;
    xs[item] = chunk::load(row.x + column);
    if constexpr (Residual == residual_mode::add) residuals[item] = chunk::load(row.residual + column);
  }
#pragma unroll
  for (int item = 0; item < Items; ++item) {
    const int column = (item * Threads + thread) * N;
    weights[item] = chunk::load(row.weight + column);
    if constexpr (Kind == norm_kind::layer)
      biases[item] = row.bias != nullptr ? chunk::load(row.bias + column) : chunk::of(vec<float, N>{});
  }
  const float inverse = given_inverse<Quantise>(row);
  launch_dependents();

  vec<float, N> values[Items];
  float total = 0;
#pragma unroll
  for (int item = 0; item < Items; ++item) {
    values[item] = xs[item].floats();
    if constexpr (Residual == residual_mode::add) {
      const vec<float, N> others = residuals[item].floats();
#pragma unroll
      for (int i = 0; i < N; ++i) values[item].at[i] += others.at[i];
      const chunk sums = chunk::of(values[item]);
      sums.store(row.sum + (item * Threads + thread) * N);
      values[item] = sums.floats();
    }
    if constexpr (Kind == norm_kind::layer) total += values[item].reduce(add{});
  }
  row_sum<Threads> sum{scratch};
  const float mean = Kind == norm_kind::layer ? sum(total) * each : 0.0f;
  vec<float, 4> squares{};
#pragma unroll
  for (int item = 0; item < Items; ++item) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float& value = values[item].at[i];
      if constexpr (Kind == norm_kind::layer) value -= mean;
      squares.at[i % 4] += value * value;
    }
  }
  // Where no bias stands between the row's scale and that of what is stored, one product serves both: `after` is for the second.
  constexpr bool folded = Quantise != quantise_mode::none && Kind == norm_kind::rms;
  const float own_scale = rsqrtf(sum(squares.reduce(add{})) * each + epsilon);
  const float before = folded ? 1.0f : own_scale, after = folded ? own_scale : 1.0f;

#pragma unroll
  for (int item = 0; item < Items; ++item) {
    const int column = (item * Threads + thread) * N;
    const vec<float, N> factors = weights[item].floats();
    vec<float, N> results;
#pragma unroll
    for (int i = 0; i < N; ++i) results.at[i] = values[item].at[i] * before * factors.at[i];
    if constexpr (Kind == norm_kind::layer) {
      const vec<float, N> offsets = biases[item].floats();
#pragma unroll
      for (int i = 0; i < N; ++i) results.at[i] += offsets.at[i];
    }
    if constexpr (Quantise == quantise_mode::none) {
      chunk::of(results).store(row.y + column);
    } else if constexpr (Quantise == quantise_mode::tensor) {
      store_packed<N>(row.y_quantised + column, quantise_packed(results, after * inverse));
    } else {
      const block_scale own = shared_scale(results, after);
      if (column % quantise_block == 0)
        row.y_block_scales[column / quantise_block * row.block_scale_stride] = own.scale;
      store_packed<N>(row.y_quantised + column, quantise_packed(results, after * own.inverse));
    }
  }
}

/// The low bits are 0 of what every row begins at a multiple of.
template <typename T>
__device__ __forceinline__ unsigned low_bits(const T* first, long long stride) {
  return static_cast<unsigned>(reinterpret_cast<unsigned long long>(first) | stride * sizeof(T));
}

/// Whether every row of `width` columns is one for norm_whole_row.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, int Items, typename T>
__device__ __forceinline__ bool is_whole(const norm_tensors<T>& tensors, int width) {
  unsigned own = low_bits(tensors.x, tensors.x_row_stride) | low_bits(tensors.weight, 0);
  if constexpr (Kind == norm_kind::layer) own |= low_bits(tensors.bias, 0);
  if constexpr (Residual == residual_mode::add) {
    own |= low_bits(tensors.residual, tensors.residual_row_stride) | low_bits(tensors.sum, tensors.sum_row_stride);
  }
  if constexpr (Quantise == quantise_mode::none) own |= low_bits(tensors.y, tensors.y_row_stride);
  const unsigned quantised = Quantise == quantise_mode::none ? 0 : low_bits(tensors.y_quantised, tensors.y_row_stride);
  return width == Threads * N * Items && own % words<T, N>::bytes == 0 && quantised % N == 0;
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

/// A row that its Threads threads hold in registers, whatever its length and alignment. Threads without a row have
/// cols = 0, and take part in shuffles only.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, int Items, typename T>
__device__ __forceinline__ void norm_ragged_row(const norm_tensors<T>& row, int cols, int thread, float epsilon,
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

/// Row `row` of those that a block has `rows` of, the first being `row_of_block`: all threads of a warp agree on how.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, int Items, typename T>
__device__ __forceinline__ void norm_resident_row(const norm_tensors<T>& tensors, long long row, bool present,
                                                  bool all_present, int cols, int thread, float epsilon,
                                                  float* scratch) {
  constexpr bool always_whole = N * sizeof(T) > 16;  // which the manifest's constraints see to
  const norm_tensors<T> own = tensors.from_row(row);
  if (all_present && (always_whole || is_whole<Kind, Residual, Quantise, Threads, N, Items>(tensors, cols))) {
    norm_whole_row<Kind, Residual, Quantise, Threads, N, Items>(own, thread, epsilon, scratch);
  } else if constexpr (!always_whole) {
    norm_ragged_row<Kind, Residual, Quantise, Threads, N, Items>(own, present ? cols : 0, thread, epsilon, scratch);
  }
}

/// A row of any length in pieces, which are what a block's threads hold at once. It is read once for each of its
/// statistics, and once to be scaled. The first reading stores the sum with the residual.
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

// What the choices of attention's ops mean, where a sequence lies, and which keys a query sees.
#pragma once

#include "common/view.cuh"

namespace kiln::attention {

/// The words of the choices, as op.toml spells them.
enum class Layout { dense, packed, paged };  // paged: queries packed, keys in pages of a pool
enum class Mask { none, causal, window };
enum class SoftCap { none, tanh };
enum class Sinks { none, head };
enum class Alibi { none, head };
enum class Bias { none, tensor };
enum class Dropout { none, philox };

/// What 8-bit q, k or v of each head are multiplied by, in device memory.
using HeadScales = const float*;

/// What makes logits of products of 8-bit queries and keys. Above 0, so that a head whose scale is 0, as that of zeros may be, has logits of
/// 0 and masked ones stay -infinity.
__device__ __forceinline__ float logit_scale(float scale, float of_queries, float of_keys) {
  return fmaxf(scale * of_queries * of_keys, 1e-30f);
}

/// What a kernel is compiled for, beside its tile.
template <typename T_, int head_dim_, int value_dim_, Layout layout_, Mask mask_, SoftCap soft_cap_, Sinks sinks_,
          Alibi alibi_ = Alibi::none, Bias bias_ = Bias::none, Dropout dropout_ = Dropout::none>
struct Form {
  using T = T_;  // of queries, keys and values; of results too, unless it has 8 bits
  static constexpr int head_dim = head_dim_, value_dim = value_dim_;
  static constexpr Layout layout = layout_;
  static constexpr Mask mask = mask_;
  static constexpr SoftCap soft_cap = soft_cap_;
  static constexpr Sinks sinks = sinks_;
  static constexpr Alibi alibi = alibi_;
  static constexpr Bias bias = bias_;
  static constexpr Dropout dropout = dropout_;
  static constexpr bool has_terms = alibi != Alibi::none || bias != Bias::none;  // added to scores
};

// Views of tensors, as op.toml declares them. Strides in elements.
template <typename T>
struct HeadRows {  // q, k, v and out: rows of heads, by sequence or page
  T* at;
  long long batch_stride, row_stride, head_stride;
};
struct LogSums {  // lse: one of each query, head by head; null where the launch has none
  float* at;
  long long batch_stride, head_stride;
};
/// As kiln::in_registers() of `common/view.cuh`.
template <typename T>
__device__ __forceinline__ HeadRows<T> in_registers(const HeadRows<T>& rows) {
  T* const at = rows.at;
  const long long batch_stride = rows.batch_stride, row_stride = rows.row_stride, head_stride = rows.head_stride;
  return {at, batch_stride, row_stride, head_stride};
}
__device__ __forceinline__ LogSums in_registers(const LogSums& sums) {
  float* const at = sums.at;
  const long long batch_stride = sums.batch_stride, head_stride = sums.head_stride;
  return {at, batch_stride, head_stride};
}
template <typename T>
struct BiasRows {  // a stride of 0: batches or heads share it
  const T* at;
  long long batch_stride, head_stride, row_stride;
};

/// What a launch gives of the terms that are added to scores, and of dropout. A pointer is null where the form has none.
template <typename T>
struct ScoreInputs {
  const float* slopes;  // ALiBi's, a head
  BiasRows<T> bias;
  const long long* dropout_seed;  // and offset
  float dropout_p;
};

/// `queries` and `keys` are those of a sequence (dense), or of all (packed).
struct Sizes {
  int batch, queries, keys, heads, key_heads;
};
/// { pack = ["scale", "cap", "from_end", "window_left", "window_right", "slopes", { view = "score_bias" }, "dropout_seed", "dropout_p"] }
template <typename T>
struct ScoreTerms {
  word<float> scale, cap;
  word<int> from_end;
  long long window_left, window_right;
  const float* slopes;
  BiasRows<T> bias;
  const long long* dropout_seed;
  word<float> dropout_p;

  __device__ __forceinline__ ScoreInputs<T> inputs() const { return {slopes, bias, dropout_seed, dropout_p}; }
};

template <typename T>
__device__ __forceinline__ ScoreTerms<T> in_registers(const ScoreTerms<T>& of) {
  ScoreTerms<T> read;
  read.scale = of.scale;
  read.cap = of.cap;
  read.from_end = of.from_end;
  read.window_left = of.window_left;
  read.window_right = of.window_right;
  read.slopes = of.slopes;
  read.bias.at = of.bias.at;
  read.bias.batch_stride = of.bias.batch_stride;
  read.bias.head_stride = of.bias.head_stride;
  read.bias.row_stride = of.bias.row_stride;
  read.dropout_seed = of.dropout_seed;
  read.dropout_p = of.dropout_p;
  return read;
}

/// What a forward kernel takes: { pack = ["scale", ..., "dropout_p", "sink"] }.
template <typename T>
struct ForwardTerms : ScoreTerms<T> {
  const float* sinks;
};
template <typename T>
__device__ __forceinline__ ForwardTerms<T> in_registers(const ForwardTerms<T>& of) {
  const float* const sinks = of.sinks;
  return {in_registers(static_cast<const ScoreTerms<T>&>(of)), sinks};
}

/// A bias below this hides its key from the query, as -infinity does. The lowest numbers of bf16 over a small scale are
/// past those of f32.
constexpr float hiding_bias = -1e30f;

__device__ __forceinline__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// A run-time size that is added to positions, of which there are fewer.
__device__ __forceinline__ int small(long long size) { return static_cast<int>(min(size, 1ll << 30)); }

/// One sequence of a batch. Dense: row 0 of `plane`; packed: rows of plane 0 from the offsets on. Paged: so are its queries, and `first_key` is its
/// number, which is its row of the block table.
struct Sequence {
  int plane, first_query, first_key;
  int queries, keys;
};

/// All sequences. Dense: each has `queries` and `keys`; packed: these many lie in the tensors, and offsets cut them. Paged: queries likewise, and no
/// sequence has more than `keys`.
struct Sequences {
  const int *query_offsets,
      *key_offsets;  // [count + 1] each, not of dense ones; paged: key_offsets are lengths, [count]
  int count, queries, keys;

  template <Layout layout>
  __device__ __forceinline__ Sequence at(int index) const {
    if constexpr (layout == Layout::dense) return {index, 0, 0, queries, keys};
    if constexpr (layout == Layout::paged) {
      const int query = offset(query_offsets, index, queries);
      return {0, query, index, max(offset(query_offsets, index + 1, queries) - query, 0),
              offset(key_offsets, index, keys)};
    }
    const int query = offset(query_offsets, index, queries), key = offset(key_offsets, index, keys);
    return {0, query, key, max(offset(query_offsets, index + 1, queries) - query, 0),
            max(offset(key_offsets, index + 1, keys) - key, 0)};
  }

 private:
  /// Offsets outside of the tensor count as its ends.
  static __device__ __forceinline__ int offset(const int* offsets, int index, int tokens) {
    return min(max(offsets[index], 0), tokens);
  }
};

/// How far a query sees. The diagonal joins first query and first key, or (`from_end`) last query and last key.
struct Window {
  bool from_end;
  int left, right;  // keys beside the diagonal's; of Mask::window
};
template <typename T>
__device__ __forceinline__ Window window_of(const ScoreTerms<T>& terms) {
  return {terms.from_end != 0, small(terms.window_left), small(terms.window_right)};
}

/// Which keys the queries of a sequence see: query i those from begin(i) to before end(i), which may be none.
template <Mask mask>
struct Visible {
  int keys, diagonal, left, right;

  __device__ __forceinline__ Visible(int query_count, int key_count, const Window& window)
      : keys(key_count),
        diagonal(window.from_end ? key_count - query_count : 0),
        left(window.left),
        right(mask == Mask::window ? window.right : 0) {}

  __device__ __forceinline__ int begin(int query) const {
    return mask == Mask::window ? max(query + diagonal - left, 0) : 0;
  }
  __device__ __forceinline__ int end(int query) const {
    return mask == Mask::none ? keys : min(query + diagonal + right + 1, keys);
  }
};

/// Blocks of keys, from `begin` to before `end`.
struct KeyBlocks {
  int begin, end;
};

/// Blocks of `width` keys that queries from `first` to `last` see any key of.
template <Mask mask>
__device__ __forceinline__ KeyBlocks key_blocks(const Visible<mask>& visible, int first, int last, int width) {
  const int begin = visible.begin(first), end = visible.end(last);
  if (end <= begin) return {0, 0};
  return {begin / width, ceil_div(end, width)};
}

}  // namespace kiln::attention

// attention_forward on the tensor cores of sm_80 and later: mma.sync, fed by two buffers of keys and values.
//
// A block has 16 * warps queries of one head. It goes through the blocks of keys that these see, from the last to the
// first, so that most of the masked ones come first. While one is multiplied the next is copied.
#pragma once

#include "common/attention/offset_reports.cuh"
#include "common/attention/row_tile.cuh"
#include "common/attention/score_terms.cuh"
#include "common/dependent_launch.cuh"

namespace kiln::attention {

/// Keys and values that are rows of tensors.
template <typename T>
struct TensorKeys {
  HeadRows<const T> k, v;

  /// Those of a sequence and a key head.
  struct OfHead {
    const T *k, *v;
    long long k_stride, v_stride;
    int keys;

    /// Starts the copies of a block of `tile_n`, to its stage of two.
    template <typename KeyTile, typename ValueTile, int tile_n, int threads>
    __device__ __forceinline__ void copy(unsigned stages, int block) const {
      const long long key = static_cast<long long>(block) * tile_n;
      const int exist = keys - block * tile_n;
      const unsigned to = stages + block % 2 * (KeyTile::bytes + ValueTile::bytes);
      KeyTile::template copy<threads>(to, k + key * k_stride, k_stride, exist);
      ValueTile::template copy<threads>(to + KeyTile::bytes, v + key * v_stride, v_stride, exist);
    }
  };
  __device__ __forceinline__ OfHead of_head(const Sequence& of, int head, int) const {
    return {k.at + of.plane * k.batch_stride + of.first_key * k.row_stride + head * k.head_stride,
            v.at + of.plane * v.batch_stride + of.first_key * v.row_stride + head * v.head_stride, k.row_stride,
            v.row_stride, of.keys};
  }
};

/// A block of attention_mma: its rows, and keys and values from where `Keys` finds them. `scales`: of 8-bit types those of q's, k's and v's
/// heads; where keys and values alone had 8 bits, those two.
template <typename Form, int tile_n, int warps, typename Keys, typename Out, typename... Scales>
__device__ __forceinline__ void attention_mma_block(const HeadRows<const typename Form::T>& q, const Keys& keys,
                                                    const HeadRows<Out>& out, const LogSums& lse, const Sequences& all,
                                                    const OffsetReports& reports, int heads, int key_heads,
                                                    const ForwardTerms<typename Form::T>& by, Scales... scales) {
  using T = typename Form::T;
  using Multiplied = typename RowElement<T>::type;
  constexpr int tile_m = warps * 16, threads = warps * 32;
  using QueryTile = RowTile<Form::head_dim, tile_m>;
  using KeyTile = RowTile<Form::head_dim, tile_n>;
  using ValueTile = RowTile<Form::value_dim, tile_n>;
  constexpr int stage_bytes = KeyTile::bytes + ValueTile::bytes;
  wait_for_predecessor();
  launch_dependents();

  // The last queries of a causal sequence, which see most keys, come first.
  const int row_blocks = ceil_div(reports.longest, tile_m);
  const int head = static_cast<int>(blockIdx.x) % heads, rest = static_cast<int>(blockIdx.x) / heads;
  const int first = (row_blocks - 1 - rest % row_blocks) * tile_m;
  if (head == 0 && rest % row_blocks == 0 && threadIdx.x == 0)
    reports.tell<Form::layout>(all, rest / row_blocks, all.count);
  const Sequence of = all.at<Form::layout>(rest / row_blocks);
  if (first >= of.queries) return;
  const Visible<Form::mask> visible(of.queries, of.keys, window_of(by));
  const KeyBlocks blocks = key_blocks(visible, first, min(first + tile_m, of.queries) - 1, tile_n);

  const unsigned tile_q = shared_address(dynamic_shared()), stages = tile_q + QueryTile::bytes;
  const int key_head = head / (heads / key_heads);
  const auto of_head = keys.of_head(of, key_head, visible.begin(first));
  const long long position = static_cast<long long>(of.first_query) + first;
  QueryTile::template copy<threads>(tile_q,
                                    q.at + of.plane * q.batch_stride + position * q.row_stride + head * q.head_stride,
                                    q.row_stride, of.queries - first);
  const auto copy_block = [&](int block) { of_head.template copy<KeyTile, ValueTile, tile_n, threads>(stages, block); };
  if (blocks.end > blocks.begin) copy_block(blocks.end - 1);
  cp_async_commit();

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16, row = first + warp_row + threadIdx.x % 32 / 4;
  const RowLimits limits(visible, row);
  const ScoreInputs<T> inputs = by.inputs();
  float logits = by.scale, value_scale = kept_scale<Form>(inputs);
  if constexpr (sizeof(T) == 1) {
    const HeadScales of_heads[] = {scales...};
    logits = logit_scale(by.scale, of_heads[0][head], of_heads[1][key_head]);
    value_scale *= of_heads[2][key_head];
  } else if constexpr (sizeof...(Scales) == 2) {
    const HeadScales of_heads[] = {scales...};
    logits = logit_scale(by.scale, 1.0f, of_heads[0][key_head]);
    value_scale *= of_heads[1][key_head];
  }
  const Scores<Form::soft_cap> to_scores(logits, by.cap);
  const RowTerms<Form> terms(inputs, to_scores, visible, of, head, row);
  SoftmaxRows rows;
  float sums[ValueTile::k_steps * 8] = {};
#pragma unroll 1
  for (int block = blocks.end - 1; block >= blocks.begin; --block) {
    if (block > blocks.begin) copy_block(block - 1);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    const unsigned tile_k = stages + block % 2 * stage_bytes, tile_v = tile_k + KeyTile::bytes;

    const auto added = terms.template at<tile_n / 2>(block * tile_n);
    const auto kept = terms.template kept<tile_n / 2>(block * tile_n);
    float scores[tile_n / 2] = {};
#pragma unroll
    for (int step = 0; step < KeyTile::k_steps; ++step) {
      unsigned a[4], b[4];
      QueryTile::load_a(a, tile_q, warp_row, step);
#pragma unroll
      for (int i = 0; i < tile_n / 16; ++i) {
        KeyTile::load_b(b, tile_k, i * 16, step);
        multiply<Multiplied>(scores, i, a, b);
      }
    }
    to_scores.cap(scores);
    added.add_to(scores);
    limits.template apply<Form::mask>(scores, block * tile_n);
    float factor[2];
    if (rows.absorb<true, Lazy::by_warp>(scores, to_scores.rate, factor)) scale_rows(sums, factor);
    keep_all(scores, kept);
#pragma unroll
    for (int step = 0; step < tile_n / 16; ++step) {
      unsigned a[4], b[4];
      pack_weights<Multiplied>(a, scores, step);
#pragma unroll
      for (int i = 0; i < ValueTile::k_steps; ++i) {
        ValueTile::load_b_trans(b, tile_v, step * 16, i);
        multiply<Multiplied>(sums, i, a, b);
      }
    }
    __syncthreads();  // all have read the buffer
  }

  const float sink = Form::sinks == Sinks::head ? by.sinks[head] : 0.0f;
  Out* const to = out.at + of.plane * out.batch_stride + of.first_query * out.row_stride + head * out.head_stride;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = row + 8 * half;
    const bool exists = query < of.queries;
    const RowEnd end = rows.finish<Form::sinks>(half, to_scores.rate, sink);
    store_row<Out, Form::value_dim / 2>(to + query * out.row_stride,
                                        reinterpret_cast<const float(&)[Form::value_dim / 2]>(sums), half,
                                        end.factor * value_scale, exists);
    if (lse.at != nullptr && exists && threadIdx.x % 4 == 0)
      lse.at[of.plane * lse.batch_stride + head * lse.head_stride + of.first_query + query] = end.lse;
  }
}

}  // namespace kiln::attention

/// grid (blocks of 16 * warps of `longest` queries * heads * batch), block (32 * warps); dynamic shared memory as attention_forward/mma.toml says.
/// `queries` and `keys` are those of a sequence (dense), or of all (packed).
/// What is no length or pointer of these is the softmax's. `scales`: those of q's, k's and v's heads; only those of
/// 8-bit types are read, which are multiplied as f16, exactly.
/// REQUIRES: q, k, v, out and their rows begin at multiples of 8 elements.
template <typename Form, int tile_n, int warps, typename Out = typename Form::T, typename... Scales>
__global__ void __launch_bounds__(warps * 32)
    attention_mma(kiln::attention::HeadRows<const typename Form::T> q,
                  kiln::attention::HeadRows<const typename Form::T> k,
                  kiln::attention::HeadRows<const typename Form::T> v, kiln::attention::HeadRows<Out> out,
                  kiln::attention::LogSums lse, const int* query_offsets, const int* key_offsets,
                  unsigned long long* query_report, unsigned long long* key_report, int batch, int queries, int keys,
                  int longest, int heads, int key_heads,
                  const __grid_constant__ kiln::attention::ForwardTerms<typename Form::T> given, Scales... scales) {
  using namespace kiln::attention;
  attention_mma_block<Form, tile_n, warps>(
      q, TensorKeys<typename Form::T>{k, v}, out, lse, {query_offsets, key_offsets, batch, queries, keys},
      {query_report, key_report, longest}, heads, key_heads, in_registers(given), scales...);
}

// attention_forward on the tensor cores of sm_90a by wgmma.
//
// As many blocks as run at once take tiles of queries in turns. One warp of the first warpgroup copies by TMA, tile
// after tile: the queries and, block by block, keys and values. Its other warps transpose values of 8 bits. Where queries
// have 16 bits, the last warpgroup widens keys and values of 8 bits. Each other warpgroup has 64 of the queries. Weights
// stay in registers, where the product with the values takes them from.
#pragma once

#include "common/attention/forward_wgmma_copy.cuh"
#include "common/attention/forward_wgmma_rows.cuh"
#include "common/attention/forward_wgmma_transpose.cuh"
#include "common/attention/forward_wgmma_widen.cuh"
#include "common/attention/offset_reports.cuh"
#include "common/dependent_launch.cuh"

namespace kiln::attention {

/// Results as they lie. Rows of out begin as the manifest of the implementation asks.
template <typename T>
struct Results {
  HeadRows<T> out;
  LogSums lse;

  /// The thread's rows of a tile, times `value_scale`. The first one is of `head` and is query `row` of the sequence.
  template <typename Tiles, int count>
  __device__ __forceinline__ void store(const Work& work, int consumer, int head, int row, const float (&sums)[count],
                                        const SoftmaxRows& rows, float rate, float value_scale,
                                        const float* sink) const {
    using Own = OwnRows<Tiles>;
    constexpr Sinks sinks = Tiles::Form::sinks;
    const int apart = Own::apart(consumer), other = Own::one_head ? head : Own::head(work.head, consumer, 1);
    // Rows from Tiles::rows on would be queries of the next tile.
    const int end = Tiles::rows == Tiles::tile_m ? work.of.queries : min(work.of.queries, work.row + Tiles::queries);
    T* const to =
        out.at + work.of.plane * out.batch_stride + work.of.first_query * out.row_stride + head * out.head_stride;
    T* const to_other = Own::one_head ? to : to + (other - head) * out.head_stride;
    const auto store_lse = [&](int of_head, int query, bool exists, float value) {
      if (lse.at != nullptr && exists && threadIdx.x % 4 == 0)
        lse.at[work.of.plane * lse.batch_stride + of_head * lse.head_stride + work.of.first_query + query] = value;
    };
    if constexpr (Tiles::stores_rows) {
      const float of_sink = sinks == Sinks::head ? sink[head] : 0.0f;
      const float of_other = Own::one_head || sinks == Sinks::none ? of_sink : sink[other];
      const bool exists[2] = {row < end, row + apart < end};
      const RowEnd ends[2] = {rows.finish<sinks, Tiles::raised>(0, rate, of_sink),
                              rows.finish<sinks, Tiles::raised>(1, rate, of_other)};
      store_rows<T>({to + row * out.row_stride, to_other + (row + apart) * out.row_stride}, sums,
                    {ends[0].factor * value_scale, ends[1].factor * value_scale}, exists);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_lse(half == 0 ? head : other, row + apart * half, exists[half], ends[half].lse);
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int of_head = half == 0 ? head : other, query = row + apart * half;
      T* const to_head = half == 0 ? to : to_other;
      const bool exists = query < end;
      const RowEnd ends = rows.finish<sinks, Tiles::raised>(half, rate, sinks == Sinks::head ? sink[of_head] : 0.0f);
      if constexpr (Tiles::transposes) {
        store_row_by_fours<T>(to_head + query * out.row_stride, sums, half, ends.factor * value_scale, exists);
      } else {
        store_row<T>(to_head + query * out.row_stride, sums, half, ends.factor * value_scale, exists);
      }
      store_lse(of_head, query, exists, ends.lse);
    }
  }
};

/// All threads of all blocks of the cluster.
__device__ __forceinline__ void meet_cluster() {
  cluster_arrive();
  cluster_wait();
}

/// A block of attention_wgmma, whose keys and values `Rows` copies. `scales`: those of k's and v's heads, if these are of 8 bits. Those of q's
/// come first, if q is too.
template <typename Tiles, typename Rows = TensorRows<Tiles>, typename Out, typename... Scales>
__device__ __forceinline__ void attention_block(const typename Rows::From& from, const HeadRows<Out>& out,
                                                const LogSums& lse, const int* query_offsets, const int* key_offsets,
                                                unsigned long long* query_report, unsigned long long* key_report,
                                                int longest, unsigned* counters, const Sizes& sizes,
                                                const ForwardTerms<typename Tiles::Form::T>& terms, int section,
                                                int drawn, Scales... scales) {
  using Form = typename Tiles::Form;
  const int heads = sizes.heads, key_heads = sizes.key_heads;
  using Layout = SharedLayout<Tiles>;
  char* const memory = dynamic_shared();
  const Layout shared{shared_address(memory)};
  Work* const works = reinterpret_cast<Work*>(memory + Layout::work);
  const int warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);
  if (warp == 0 && elect_one()) {
    shared.make_barriers();
    prefetch_tensormap(from.q);
    prefetch_tensormap(from.k);
    prefetch_tensormap(from.v);
  }
  if constexpr (Tiles::blocks == 1) {
    __syncthreads();
  } else {
    meet_cluster();
  }
  wait_for_predecessor();
  launch_dependents();

  const Window window = window_of(terms);
  // Not of `warp`: ptxas would ignore setmaxnreg.
  const int of_block = __shfl_sync(full_warp, threadIdx.x / warpgroup, 0);
  if constexpr (Tiles::widening_warps > 0) {
    using Registers = WideningRegisters<Tiles::consumers>;
    if (of_block == 1 + Tiles::consumers) {
      setmaxnreg_dec<Registers::of_other>();
      widen_all<Tiles>(shared, memory, works, window);
      return;
    }
    if (of_block == 0) {
      setmaxnreg_dec<Registers::of_other>();
    } else {
      setmaxnreg_inc<Registers::of_consumer>();
    }
  } else {
    take_registers<Tiles::consumers, Rows::registers>(of_block == 0);
  }
  if (of_block == 0) {
    const Sequences all = {query_offsets, key_offsets, sizes.batch, sizes.queries, sizes.keys};
    if (warp == 0)
      copy_all<Tiles, Rows>(shared, works, from, all, window, heads, heads / key_heads, {counters, drawn != 0},
                            section);
    if constexpr (Tiles::value_warps > 0) {
      if (warp == 1) copy_all_values<Tiles, Rows>(shared, works, from, window, heads / key_heads);
    }
    if constexpr (Tiles::transposes) {
      if (warp != 0) transpose_all<Tiles>(shared, works, window, warp - 1);
    }
    if (warp == 3)
      OffsetReports{query_report, key_report, longest}.tell<Form::layout>(
          all, static_cast<int>(blockIdx.x * 32 + threadIdx.x % 32), static_cast<int>(gridDim.x * 32));
    if constexpr (Tiles::blocks > 1) meet_cluster();
    return;
  }
  const int consumer = of_block - 1;
  Scores<Form::soft_cap> to_scores(terms.scale, terms.cap);
  const Results<Out> results = {out, lse};
  const ScoreInputs<typename Form::T> inputs = terms.inputs();
  float value_scale = kept_scale<Form>(inputs);
  WarpgroupRows<Tiles> rows(shared, memory, consumer, to_scores);
  if constexpr (Tiles::rows < Tiles::tile_m) {
    if (consumer == Tiles::consumers - 1) clear_rows_from<typename Tiles::Query>(Tiles::rows, memory, 1 + consumer);
  }
  RingPosition<Layout::works> at;
  if (consumer == Tiles::consumers - 1) Turns<Tiles>::pass(consumer);
#pragma unroll 1
  for (;; at.advance()) {
    const Place place = shared.works_at(at.slot);
    mbarrier_wait(place.full, at.parity);
    const Work work = agreed(works[at.slot]);
    release(place);
    if (work.exists == 0) break;
    if constexpr (Tiles::transposes || Tiles::widening_warps > 0) {
      const HeadScales of_heads[] = {scales...};
      constexpr int of_k = sizeof...(Scales) - 2;
      const int key_head = work.head / (heads / key_heads);
      const float of_query = of_k == 0 ? 1.0f : of_heads[0][work.head];
      to_scores = Scores<Form::soft_cap>(logit_scale(terms.scale, of_query, of_heads[of_k][key_head]), terms.cap);
      value_scale = kept_scale<Form>(inputs) * of_heads[of_k + 1][key_head];
      rows.set_scores(to_scores);
    }
    const Visible<Form::mask> visible(work.of.queries, work.of.keys, window);
    const int last = min(work.row + Tiles::queries, work.of.queries) - 1;
    rows.attend(work, visible, inputs, key_blocks(visible, work.row, last, Tiles::tile_n),
                [&](const float(&sums)[Form::value_dim / 2], const SoftmaxRows& softmax) {
                  using Own = OwnRows<Tiles>;
                  const int row = Own::query(work.row, consumer, Own::first_query(work.row, consumer));
                  results.template store<Tiles>(work, consumer, Own::head(work.head, consumer, 0), row, sums, softmax,
                                                to_scores.rate, value_scale, terms.sinks);
                });
  }
  if constexpr (Tiles::blocks > 1) meet_cluster();  // others may still fill and empty places of this block
}

}  // namespace kiln::attention

/// grid: blocks that run at once; block and dynamic shared memory as attention_forward/wgmma.toml says. The maps show
/// q, k and v as [planes, tokens, heads, columns]. A box has one plane, tile_m / heads_of_tile or tile_n tokens,
/// heads_of_tile heads of q or one of k or v, and SwizzledTile's columns. `section`: heads whose keys and values L2 holds. `counters`: two words, zero before and after, if `drawn`. `scales`: those of q's,
/// k's and v's heads, if these are of 8 bits.
template <typename Form, int tile_m, int tile_n, int stages, bool overlap, bool pingpong, int lazy,
          bool promoted = false, bool holds_queries = false, bool late = false, int heads_of_tile = 1,
          bool trims = false, typename Out = typename Form::T, typename... Scales>
__global__ void __launch_bounds__(
    kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, overlap, pingpong, lazy, promoted, holds_queries, late,
                                 1, heads_of_tile, trims>::threads,
    1) attention_wgmma(const __grid_constant__ kiln::tensor_map q_map, const __grid_constant__ kiln::tensor_map k_map,
                       const __grid_constant__ kiln::tensor_map v_map, kiln::attention::HeadRows<Out> out,
                       kiln::attention::LogSums lse, const int* query_offsets, const int* key_offsets,
                       unsigned long long* query_report, unsigned long long* key_report, int longest,
                       unsigned* counters, int batch, int queries, int keys, int heads, int key_heads,
                       const __grid_constant__ kiln::attention::ForwardTerms<typename Form::T> terms, int section,
                       int drawn, Scales... scales) {
  using Tiles = kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, overlap, pingpong, lazy, promoted,
                                             holds_queries, late, 1, heads_of_tile, trims>;
  kiln::attention::attention_block<Tiles>({&q_map, &k_map, &v_map}, out, lse, query_offsets, key_offsets, query_report,
                                          key_report, longest, counters, {batch, queries, keys, heads, key_heads},
                                          in_registers(terms), section, drawn, scales...);
}

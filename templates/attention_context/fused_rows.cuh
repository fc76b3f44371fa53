// A warpgroup of attention_context_fused that multiplies: 64 queries by the keys of one rank after another. One softmax takes them all, as they
// come, so that nothing has to be merged.
#pragma once

#include "common/attention/forward_wgmma_rows.cuh"
#include "segments.cuh"

namespace kiln::attention {

template <typename Tiles, int World>
class SegmentRows : public WarpgroupRows<Tiles> {
  using Base = WarpgroupRows<Tiles>;

 public:
  using Form = typename Tiles::Form;
  using Base::Base;
  using typename Base::T;
  using typename Base::Visible;

  /// Goes through all keys that a tile sees; hands `store(sums, softmax)` what comes of them.
  template <typename Store>
  __device__ __forceinline__ void attend(const Work& work, const Segments<World, Form::mask>& segments, Store store) {
    const int first_row = work.row + this->consumer_ * warpgroup_rows;
    const int row =
        first_row + static_cast<int>(threadIdx.x) % warpgroup / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    const Visible visible(work.of.queries, work.of.keys, {true, 0, 0});
    const RowTerms<Form> terms({}, this->to_scores_, visible, work.of, work.head, row);
    RowLimits limits(visible, row);
    typename Base::Sums sums;
    SoftmaxRows rows;
    typename Base::Weights weights;
    mbarrier_wait(this->shared_.query().full, this->query_at_.parity);
    this->query_at_.advance();
#pragma unroll 1
    for (int segment = 0; segment < segments.count(); ++segment) {
      const int keys = segments.keys(segment);
      const KeyBlocks blocks = segments.template blocks<Tiles::tile_m, Tiles::tile_n>(segment, keys, work.row);
      const bool is_last = segment + 1 == segments.count();
      int block = blocks.end - 1, whole_end = keys / Tiles::tile_n;  // all rows see all keys of blocks before
      if (segment == 0) {
        whole_end = max(visible.end(first_row), 0) / Tiles::tile_n;
        begin(rows, weights, limits, block, is_last && block == 0);
      } else {
        limits.end[0] = limits.end[1] = keys;
        this->template step<true>(sums, rows, weights, limits, terms, block, is_last && block == 0);
      }
      this->clear_values_past(keys - block * Tiles::tile_n);
      --block;
      if constexpr (Form::mask != Mask::none) {
#pragma unroll 1
        for (; block >= whole_end; --block)
          this->template step<true>(sums, rows, weights, limits, terms, block, is_last && block == 0);
      }
#pragma unroll 1
      for (; block >= 0; --block)
        this->template step<false>(sums, rows, weights, limits, terms, block, is_last && block == 0);
    }
    this->start_values(sums, weights);
    this->end_values(sums, weights);
    store(sums.all, rows);
  }

 private:
  /// The first block, which has no values before it.
  __device__ __forceinline__ void begin(SoftmaxRows& rows, typename Base::Weights& weights, const RowLimits& limits,
                                        int block, bool last) {
    typename Base::Block scores;
    this->start_scores(scores);
    wgmma_wait_group<0>();
    this->end_scores(scores, last);
    limits.template apply<Form::mask>(scores, block * Tiles::tile_n);
    float factor[2];
    rows.template absorb<true, Lazy::no>(scores, this->to_scores_.rate, factor);
    this->pack(weights, scores);
  }
};

}  // namespace kiln::attention

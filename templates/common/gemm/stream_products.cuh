// Products of what lies in a warp's ring, by mma.sync, W as the left operand and x as the right one.
#pragma once

#include "common/gemm/stream_ring.cuh"
#include "common/mma.cuh"

namespace kiln::gemm {

/// Products that two chunks of k are: of bytes two, since they are multiplied as f16, which holds all of them exactly.
template <typename T>
inline constexpr int products_of_pair = sizeof(T) == 1 ? 2 : 1;
template <typename T>
struct multiplied {
  using type = T;
};
template <>
struct multiplied<e4m3> {
  using type = f16;
};
template <>
struct multiplied<e5m2> {
  using type = f16;
};

/// Left operands out of 16 rows by two chunks as ldmatrix brings them. A word of four bytes becomes two words that
/// stand in the places of neighbours along k. Right operands change in the same way, so that it does not matter which
/// places they are.
template <typename T>
__device__ __forceinline__ void left_operands(unsigned (&to)[products_of_pair<T>][4], const unsigned (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4 * products_of_pair<T>; ++i) {
    if constexpr (sizeof(T) == 1) {
      to[i / 4][i % 4] = cvt_rn_f16x2<T>(words[i / 4 * 2 + i % 2], i % 4 / 2);
    } else {
      to[0][i] = words[i];
    }
  }
}

/// Right operands out of 8 rows by four chunks.
template <typename T>
__device__ __forceinline__ void right_operands(unsigned (&to)[2 * products_of_pair<T>][2], const unsigned (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4 * products_of_pair<T>; ++i) {
    if constexpr (sizeof(T) == 1) {
      to[i / 2][i % 2] = cvt_rn_f16x2<T>(words[i / 2], i % 2);
    } else {
      to[i / 2][i % 2] = words[i];
    }
  }
}

/// Adds the products of a stage.
template <typename X, typename W, class Share>
__device__ __forceinline__ void multiply_stage(Sums (&sums)[Share::warp_tiles], unsigned stage) {
  using T = typename multiplied<W>::type;
  static_assert(is_same<T, typename multiplied<X>::type> && sizeof(X) == sizeof(W));
  const unsigned lane = threadIdx.x % 32;
  const unsigned from_w = stage + chunk_offset(lane % 16, lane / 16);
  const unsigned from_x = stage + Share::x_offset + chunk_offset(lane % 8, lane / 8);
#pragma unroll
  for (int chunk = 0; chunk < line_chunks; chunk += 4) {
    unsigned b[Share::x_groups][2 * products_of_pair<X>][2];
#pragma unroll
    for (int j = 0; j < Share::x_groups; ++j) {
      unsigned words[4];
      ldmatrix_x4(words, (from_x ^ chunk * chunk_bytes) + j * 8 * line_bytes);
      right_operands<X>(b[j], words);
    }
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
#pragma unroll
      for (int f = 0; f < Share::w_fragments; ++f) {
        unsigned words[4], a[products_of_pair<W>][4];
        ldmatrix_x4(words, (from_w ^ (chunk + 2 * pair) * chunk_bytes) + f * 16 * line_bytes);
        left_operands<W>(a, words);
#pragma unroll
        for (int i = 0; i < products_of_pair<W>; ++i) {
#pragma unroll
          for (int j = 0; j < Share::x_groups; ++j) {
            const unsigned(&right)[2] = b[j][pair * products_of_pair<W> + i];
            mma_m16n8k16<T>(sums[f * Share::x_groups + j].at, a[i], right[0], right[1]);
          }
        }
      }
    }
  }
}

/// For products whose scales are none of k's.
struct NoScales {};

/// The scales of blocks of 128 of k, a line of bytes each, by which a lane multiplies its sums of a line. They are
/// those of two rows of x in each group, and of the 128 rows of W that the warp's rows are among.
template <class Share>
class BlockScales {
 public:
  /// From block `part` of `blocks` on. `w_scale` is of the first of the warp's rows.
  __device__ __forceinline__ BlockScales(const float* x_scale, const float* w_scale, int rows_of_x, long long x_stride,
                                         long long x_k_stride, long long w_k_stride, int part, int blocks)
      : x_(x_scale + part * x_k_stride),
        w_(w_scale + part * w_k_stride),
        x_stride_(x_stride),
        x_advance_(Share::parts_of_k * x_k_stride),
        w_advance_(Share::parts_of_k * w_k_stride),
        last_row_(rows_of_x - 1),
        left_(blocks - part) {}

  /// The next line's.
  __device__ __forceinline__ void load() {
    const float of_w = left_ > 0 ? *w_ : 0.0f;
#pragma unroll
    for (int j = 0; j < Share::x_groups; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = min(j * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i, last_row_);
        factor_[j][i] = left_ > 0 ? x_[row * x_stride_] * of_w : 0.0f;
      }
    }
    x_ += x_advance_;
    w_ += w_advance_;
    left_ -= Share::parts_of_k;
  }
  __device__ __forceinline__ void add(Sums (&sums)[Share::warp_tiles], const Sums (&of_line)[Share::warp_tiles]) const {
#pragma unroll
    for (int tile = 0; tile < Share::warp_tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[tile].at[i] = fmaf(of_line[tile].at[i], factor_[tile % Share::x_groups][i % 2], sums[tile].at[i]);
    }
  }

 private:
  const float *x_, *w_;
  long long x_stride_, x_advance_, w_advance_;
  int last_row_, left_;
  float factor_[Share::x_groups][2];
};

/// Adds the products of a warp's lines, through a ring that has been filled.
template <typename X, typename W, class Share, class Scales>
__device__ __forceinline__ void multiply_lines(Sums (&sums)[Share::warp_tiles], LaneCopy<X, W, Share>& from,
                                               Scales& scales, unsigned ring, int lines) {
  unsigned stage = ring;
#pragma unroll 1
  for (int line = 0; line < lines; ++line) {
    if constexpr (!is_same<Scales, NoScales>) scales.load();  // on their way while the line arrives
    cp_async_wait<Share::stages - 1>();
    __syncwarp();  // what other lanes copied is seen
    if constexpr (is_same<Scales, NoScales>) {
      multiply_stage<X, W, Share>(sums, stage);
    } else {
      Sums of_line[Share::warp_tiles] = {};
      multiply_stage<X, W, Share>(of_line, stage);
      scales.add(sums, of_line);
    }
    __syncwarp();  // and may be overwritten
    if (line + Share::stages < lines) from.copy(stage);
    cp_async_commit();
    stage = stage + Share::stage_bytes == ring + Share::ring_bytes ? ring : stage + Share::stage_bytes;
  }
}

}  // namespace kiln::gemm

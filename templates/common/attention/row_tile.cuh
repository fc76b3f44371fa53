// Rows of queries, keys or values in shared memory, as mma.sync takes them.
#pragma once

#include "common/async_copy.cuh"
#include "common/mma.cuh"

namespace kiln::attention {

/// As what elements are multiplied: 8-bit floats as f16, which holds them exactly.
template <typename T>
struct RowElement {
  using type = T;
};
template <>
struct RowElement<e4m3> {
  using type = f16;
};

/// The two elements of 8 bits of one half of a word as f16.
__device__ __forceinline__ unsigned widened_pair(unsigned word, int half) {
#if __CUDA_ARCH__ >= 890
  return cvt_rn_f16x2<e4m3>(word, half);
#else
  const unsigned bits = word >> half * 16;
  return cvt_rn_x2<f16>(to_float(e4m3{static_cast<unsigned char>(bits)}),
                        to_float(e4m3{static_cast<unsigned char>(bits >> 8)}));
#endif
}
/// Eight elements of 8 bits as f16.
__device__ __forceinline__ uint4 widened(uint2 bytes) {
  return make_uint4(widened_pair(bytes.x, 0), widened_pair(bytes.x, 1), widened_pair(bytes.y, 0),
                    widened_pair(bytes.y, 1));
}

/// Rows of `dim` 16-bit elements in shared memory. Chunks of 16 bytes are permuted by the row, so that the eight that
/// ldmatrix reads at once lie in different banks. Columns past `dim`, up to a multiple of 16, are zero.
template <int dim, int rows>
struct RowTile {
  static constexpr int k_steps = (dim + 15) / 16, pitch = (dim + 63) / 64 * 128, bytes = rows * pitch;

  static __device__ __forceinline__ unsigned offset(int row, int chunk) {
    return row * pitch + (chunk ^ (row & 7)) * 16;
  }

  /// Starts the copies of the rows from `from` on, `row_stride` elements apart; zeros from row `exist` on.
  template <int threads, typename T>
  static __device__ __forceinline__ void copy(unsigned to, const T* from, long long row_stride, int exist) {
    constexpr int chunks = k_steps * 2, all = rows * chunks;
#pragma unroll 4
    for (int i = threadIdx.x; i < all; i += threads) {
      const int row = i / chunks, chunk = i % chunks;
      const bool read = row < exist && chunk * 8 < dim;
      if constexpr (sizeof(T) == 1) {  // not asynchronous
        const uint2 bytes =
            read ? *reinterpret_cast<const uint2*>(from + row * row_stride + chunk * 8) : make_uint2(0, 0);
        char* const memory = dynamic_shared();
        *reinterpret_cast<uint4*>(memory + (to + offset(row, chunk) - shared_address(memory))) = widened(bytes);
      } else {
        cp_async_16(to + offset(row, chunk), read ? from + row * row_stride + chunk * 8 : from, read);
      }
    }
  }
  /// As copy(), of rows of 16-bit elements that lie where `at(row)` says; zeros for those that do not exist. `some`: any readable address.
  template <int threads, typename T, typename Exists, typename At>
  static __device__ __forceinline__ void copy_rows(unsigned to, const T* some, Exists exists, At at) {
    constexpr int chunks = k_steps * 2, all = rows * chunks;
#pragma unroll 4
    for (int i = threadIdx.x; i < all; i += threads) {
      const int row = i / chunks, chunk = i % chunks;
      const bool read = exists(row) && chunk * 8 < dim;
      cp_async_16(to + offset(row, chunk), read ? at(row) + chunk * 8 : some, read);
    }
  }

  /// A fragment of 16 rows from `row` on by 16 columns from 16 * step on: as mma's a, or of two b side by side.
  static __device__ __forceinline__ void load_a(unsigned (&a)[4], unsigned tile, int row, int step) {
    const int lane = threadIdx.x % 32;
    ldmatrix_x4(a, tile + offset(row + lane % 16, step * 2 + lane / 16));
  }
  static __device__ __forceinline__ void load_b(unsigned (&b)[4], unsigned tile, int row, int step) {
    const int lane = threadIdx.x % 32;
    ldmatrix_x4(b, tile + offset(row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
  }
  /// Loads a fragment of a whose rows run along k.
  static __device__ __forceinline__ void load_a_trans(unsigned (&a)[4], unsigned tile, int row, int step) {
    const int lane = threadIdx.x % 32;
    ldmatrix_x4_trans(a, tile + offset(row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
  }
  static __device__ __forceinline__ void load_b_trans(unsigned (&b)[4], unsigned tile, int row, int step) {
    const int lane = threadIdx.x % 32;
    ldmatrix_x4_trans(b, tile + offset(row + lane % 16, step * 2 + lane / 16));
  }
};

/// Adds products of 16 rows by 16 columns of b to the sums from column 16 * at on. Two fragments of b lie side by side.
template <typename T, int count>
__device__ __forceinline__ void multiply(float (&sums)[count], int at, const unsigned (&a)[4], const unsigned (&b)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
    mma_m16n8k16<T>(reinterpret_cast<float(&)[4]>(sums[8 * at + 4 * half]), a, b[2 * half], b[2 * half + 1]);
}

}  // namespace kiln::attention

// Inputs for verification and timing: lengths by the cases of op.toml's [prepare], tables of distinct pages, scales, and values.
#pragma once

#include "common/attention/cache_rows.cuh"
#include "common/attention/drawn_value.cuh"
#include "common/attention/problem.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

namespace kiln::attention {

/// The keys of sequence `index`, between 0 and `keys`.
__device__ inline long long prepared_length(long long index, long long batch, long long keys, unsigned long long seed,
                                            int which) {
  if (which == 1) return keys * (index + 1) / batch * (index + 1) / batch;            // skewed
  if (which == 2) return index % 2 == 0 ? 0 : max(keys - index * keys / batch, 0ll);  // empty
  if (which == 3) {  // one_long: about the ends of tiles, but one
    const long long shift = index % 3 - 1;
    return index == static_cast<long long>(seed % batch) ? keys : min(keys, (16ll << index / 3 % 5) + shift);
  }
  return keys;  // equal
}

}  // namespace kiln::attention

/// grid (batch / 256), block (256).
__global__ __launch_bounds__(256) void attention_cache_lengths(int* key_lengths, long long batch, long long keys,
                                                               unsigned long long seed, int which) {
  const long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < batch) key_lengths[i] = static_cast<int>(kiln::attention::prepared_length(i, batch, keys, seed, which));
}

/// grid (entries / 256), block (256). Pages are distinct where the pool has enough, and in no order. Entries past a sequence's last key
/// are -1.
__global__ __launch_bounds__(256) void attention_cache_table(kiln::view<int, 1> block_table, const int* key_lengths,
                                                             long long batch, long long keys, int page_size, int pages,
                                                             unsigned long long seed) {
  const long long entries = (keys + page_size - 1) / page_size, i = blockIdx.x * 256ll + threadIdx.x;
  if (i >= batch * entries) return;
  const auto common_divisor = [](long long a, long long b) {
    while (b != 0) {
      const long long rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  };
  long long stride = pages * 5ll / 8 + 1;
  while (common_divisor(stride, pages) != 1) ++stride;
  const long long sequence = i / entries, entry = i % entries;
  block_table.address[sequence * block_table.strides[0] + entry] =
      entry * page_size < key_lengths[sequence]
          ? static_cast<int>((i % pages * stride + static_cast<long long>(seed % 1000)) % pages)
          : -1;
}

/// grid (entries / 256), block (256). A sequence's keys lie backwards among its `rows` rows, and begin anywhere. They are distinct if there
/// are enough rows. Entries past the last key are -1.
__global__ __launch_bounds__(256) void attention_cache_indices(kiln::view<int, 1> table, const int* key_lengths,
                                                               long long batch, long long keys, int rows,
                                                               unsigned long long seed) {
  const long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i >= batch * keys) return;
  const long long sequence = i / keys, key = i % keys;
  const auto first = static_cast<long long>((seed + 37 * sequence) % static_cast<unsigned>(rows));
  table.address[sequence * table.strides[0] + key] =
      key < key_lengths[sequence] ? static_cast<int>((first + key * (rows - 1ll)) % rows) : -1;
}

/// grid (1), block (256): a key head's scales of 8-bit k and v, from 3 / 4 to 5 / 4.
__global__ __launch_bounds__(256) void attention_cache_scales(float* k_scale, float* v_scale, long long key_heads,
                                                              unsigned long long seed) {
  for (long long i = threadIdx.x; i < key_heads; i += 256) {
    k_scale[i] = 1.0f + 0.25f * kiln::attention::drawn_value(~seed, 2 * i);
    v_scale[i] = 1.0f + 0.25f * kiln::attention::drawn_value(~seed, 2 * i + 1);
  }
}

/// grid (keys of all sequences), block (128): values as attention_values draws them, for keys that exist; the others are left as they are.
template <typename T, kiln::attention::CacheLayout layout>
__global__ __launch_bounds__(128) void attention_cache_values(kiln::attention::HeadRows<T> v, const int* key_lengths,
                                                              kiln::view<const int, 1> block_table, long long keys,
                                                              long long key_heads, long long value_dim, int page_size,
                                                              int pages, unsigned long long seed) {
  using namespace kiln::attention;
  const int sequence = static_cast<int>(blockIdx.x / keys), key = static_cast<int>(blockIdx.x % keys);
  if (key >= key_lengths[sequence]) return;
  const CacheRows<layout> rows = {sequence, block_table.address + sequence * block_table.strides[0], page_size, pages};
  const CacheRow at = rows.at(key);
  const float size = sqrtf(static_cast<float>(sizeof(T) == 1 ? min(1 + key, 1 << 17) : 1 + key));  // e4m3 ends at 448
  for (long long i = threadIdx.x; i < key_heads * value_dim; i += 128) {
    const long long head = i / value_dim, column = i % value_dim;
    v.at[at.outer * v.batch_stride + at.row * v.row_stride + head * v.head_stride + column] =
        kiln::from_float<T>(drawn_value(seed, blockIdx.x * key_heads * value_dim + i) * size);
  }
}

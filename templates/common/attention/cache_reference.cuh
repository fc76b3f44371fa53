// A row of attention over a cache in double, for the references of its ops: for each key the query sees, exp(logit - largest), then sums.
#pragma once

#include "common/attention/cache_rows.cuh"
#include "common/attention/problem.cuh"
#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln::attention {

template <typename Form>
__device__ double reference_logit(const typename Form::T* query, const typename Form::Cache* key, double scale,
                                  double cap) {
  double dot = 0;
  for (int i = 0; i < Form::head_dim; ++i) dot += to_double(query[i]) * to_double(key[i]);
  return Form::soft_cap == SoftCap::tanh ? cap * tanh(dot * scale / cap) : dot * scale;
}

/// What a row's results are made from: keys and values of its key head, and units of 8-bit ones.
template <typename Cache, CacheLayout layout>
struct CacheOfHead {
  HeadRows<const Cache> k, v;
  CacheRows<layout> rows;
  int head;
  double logit_scale, value_scale;

  __device__ const Cache* at(const HeadRows<const Cache>& of, int key) const {
    const CacheRow row = rows.at(key);
    return of.at + row.outer * of.batch_stride + row.row * of.row_stride + head * of.head_stride;
  }
};

/// Shared memory of a block.
struct ReferenceStorage {
  double scratch[2][8], weights[256];
};

/// By a block of 256 threads: the result of a query that sees keys from `begin` to before `end`, at `out` unless that is null, and at `lse`
/// likewise.
template <typename Form>
__device__ void reference_of_row(const typename Form::T* query,
                                 const CacheOfHead<typename Form::Cache, Form::layout>& cache, int begin, int end,
                                 double cap, const float* sink, ReferenceStorage& shared, float* out, float* lse) {
  const int thread = threadIdx.x;
  const auto logit = [&](int key) {
    return reference_logit<Form>(query, cache.at(cache.k, key), cache.logit_scale, cap);
  };
  const auto larger = [](double a, double b) { return a > b ? a : b; };
  const double lowest = -static_cast<double>(infinity());
  double largest = Form::sinks == Sinks::head ? *sink : lowest;
  for (int key = begin + thread; key < end; key += 256) largest = larger(logit(key), largest);
  largest = block_reduce<8>(warp_reduce(largest, larger), lowest, larger, shared.scratch[0]);

  double sum = 0, result = 0;  // of this thread's keys; of its column
  for (int first = begin; first < end; first += 256) {
    const int here = min(end - first, 256);
    __syncthreads();
    if (thread < here) sum += shared.weights[thread] = exp(logit(first + thread) - largest);
    __syncthreads();
    if (thread >= Form::value_dim) continue;
    for (int i = 0; i < here; ++i) result += shared.weights[i] * to_double(cache.at(cache.v, first + i)[thread]);
  }
  sum = block_reduce<8>(warp_reduce(sum, add{}), 0.0, add{}, shared.scratch[1]);
  if (Form::sinks == Sinks::head && largest != lowest) sum += exp(*sink - largest);

  if (out != nullptr && thread < Form::value_dim)
    out[thread] = sum == 0 ? 0.0f : static_cast<float>(result / sum * cache.value_scale);
  if (lse != nullptr && thread == 0) *lse = static_cast<float>(sum == 0 ? lowest : largest + log(sum));
}

}  // namespace kiln::attention

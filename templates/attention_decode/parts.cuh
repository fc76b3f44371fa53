// Which keys of which sequence a block of attention_decode_mma takes.
//
// A plane is a sequence's rows of queries of one key head, 64 at most. All blocks of keys of all planes, sequence by
// sequence and plane by plane, are shared out evenly. A thread block takes `size` of them, one after another, whatever
// sequences they belong to. So a long sequence is split and a short one is not, and all blocks end together. What a
// block takes of one plane is a part.
#pragma once

#include "cache.cuh"
#include "common/reduce.cuh"

namespace kiln::attention {

/// Invariant::yes: a plane is cut into chunks of `chunk_keys` keys, doubled until there are no more than `most_chunks`. A block takes the
/// chunks that begin in its share, each as a part of its own.
inline constexpr int chunk_keys = 512, most_chunks = 32;

__device__ __forceinline__ int chunk_blocks(int blocks, int block_n) {
  int chunk = max(chunk_keys / block_n, 1);
  while (ceil_div(blocks, chunk) > most_chunks) chunk *= 2;
  return chunk;
}

/// A block's share: blocks of keys from `begin` to before `end`, counted over all planes.
struct Share {
  long long begin, end, size;
  int sequence;      // that `begin` lies in
  long long before;  // blocks of one plane each of the sequences before it
};

/// All threads of the block call it together. `scratch`: 2 * (threads / 32) + 2 words in shared memory. The plane with the most blocks is cut
/// into `splits` parts or so at most, whatever the bucket's bound is.
template <int threads, Mask mask>
__device__ __forceinline__ Share find_share(const Batch<mask>& batch, int block_n, int planes, int splits,
                                            long long* scratch) {
  constexpr int warps = threads / 32;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int each = ceil_div(batch.sequences, threads), first = thread * each;
  const int last = min(first + each, batch.sequences);
  long long own = 0;
  int longest = 1;
  for (int i = first; i < last; ++i) {
    if (blockIdx.x == 0) batch.tell_if_outside(i);
    const int blocks = batch.extent(i, block_n).blocks;
    own += blocks;
    longest = max(longest, blocks);
  }
  longest = warp_reduce(longest, [](int a, int b) { return max(a, b); });
  long long before = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const long long others = __shfl_up_sync(full_warp, before, distance);
    if (lane >= distance) before += others;
  }
  if (lane == 31) {
    scratch[warp] = before;
    scratch[warps + 2 + warp] = longest;
  }
  __syncthreads();
  before -= own;
  long long all = 0;
#pragma unroll
  for (int i = 0; i < warps; ++i) {
    if (i == warp) before += all;
    all += scratch[i];
    longest = max(longest, static_cast<int>(scratch[warps + 2 + i]));
  }

  Share share;
  const long long units = all * planes;
  share.size = max((units + gridDim.x - 1) / gridDim.x, static_cast<long long>(ceil_div(longest, splits)));
  share.begin = min(blockIdx.x * share.size, units);
  share.end = min(share.begin + share.size, units);
  if (share.begin >= before * planes && share.begin < (before + own) * planes) {
    int at = first;
    for (int blocks; share.begin >= (before + (blocks = batch.extent(at, block_n).blocks)) * planes; ++at)
      before += blocks;
    scratch[warps] = at;
    scratch[warps + 1] = before;
  }
  __syncthreads();
  share.sequence = static_cast<int>(scratch[warps]);
  share.before = scratch[warps + 1];
  return share;
}

/// Blocks of keys of a plane, from `from` to before `to`.
struct Part {
  int sequence, plane;
  Extent extent;
  int from, to;
  long long slot;  // of what it leaves for the combination; -1: it has all of the plane and writes its results
};

/// The last part of a block, where the plane goes on in the blocks after it.
struct alignas(16) Cut {
  int sequence, plane;
  int parts;  // of the plane; 0: none goes on
  int unused;
};

/// The parts of a share, one after another. Slots, where invariant is `no`: two for each block of the grid. The first
/// is for a part of a plane that began in an earlier block, the second for the others. Where it is `yes`: most_chunks
/// for each plane.
template <Invariant invariant, Mask mask>
class Parts {
 public:
  __device__ __forceinline__ Parts(const Batch<mask>& batch, int block_n, int planes, const Share& share)
      : batch_(batch), block_n_(block_n), planes_(planes), share_(share), at_(share.begin) {}

  /// False at the end.
  __device__ __forceinline__ bool next(Part& part) {
    while (at_ < share_.end) {
      const Extent extent = batch_.extent(share_.sequence, block_n_);
      const long long in_sequence = at_ - share_.before * planes_;
      if (in_sequence >= static_cast<long long>(extent.blocks) * planes_) {
        share_.before += extent.blocks;
        ++share_.sequence;
        continue;
      }
      const int plane = static_cast<int>(in_sequence / extent.blocks);
      const int block = static_cast<int>(in_sequence - static_cast<long long>(plane) * extent.blocks);
      part = {share_.sequence, plane, extent, block, extent.blocks, -1};
      if (cut(part)) return true;
    }
    return false;
  }

  /// After the last part.
  __device__ __forceinline__ Cut cut_at_end(const Part& last) const {
    if (share_.begin == share_.end || last.from != 0 || last.to == last.extent.blocks) return {};
    const long long begin = at_ - last.to;  // of the plane
    return {last.sequence, last.plane,
            static_cast<int>((begin + last.extent.blocks - 1) / share_.size) - static_cast<int>(blockIdx.x) + 1, 0};
  }

 private:
  /// Ends the part where the share or the chunk does, and goes on to what follows. False where no chunk begins.
  __device__ __forceinline__ bool cut(Part& part) {
    const int blocks = part.extent.blocks;
    if constexpr (invariant == Invariant::no) {
      part.to = static_cast<int>(min(static_cast<long long>(blocks), part.from + (share_.end - at_)));
      if (part.from != 0 || part.to != blocks) part.slot = 2ll * blockIdx.x + (part.from == 0);
      at_ += part.to - part.from;
      return true;
    }
    const int width = chunk_blocks(blocks, block_n_), chunk = ceil_div(part.from, width);
    const long long begin = at_ - part.from;  // of the plane
    part.from = min(chunk * width, blocks);
    part.to = min(part.from + width, blocks);
    if (width < blocks)
      part.slot = (static_cast<long long>(part.sequence) * planes_ + part.plane) * most_chunks + chunk;
    const bool exists = part.from < blocks && begin + part.from < share_.end;
    at_ = begin + part.to;
    return exists;
  }

  Batch<mask> batch_;
  int block_n_, planes_;
  Share share_;
  long long at_;
};

}  // namespace kiln::attention

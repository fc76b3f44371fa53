// Attention over the keys of all ranks while these arrive, on the tensor cores of sm_90a.
//
// The first blocks begin by pushing this rank's keys and values, chunk by chunk, to the ranks that see them. Then all blocks take tiles of
// queries, as common/attention/forward_wgmma.cuh says. A tile goes through this rank's own keys first. The thread that copies waits for each
// chunk of the peers'. Nobody waits for a block of its own rank, so no two of them need to run at once.
#pragma once

#include "common/attention/forward_wgmma.cuh"
#include "common/view.cuh"
#include "fused_copy.cuh"
#include "fused_rows.cuh"

namespace kiln::attention {

/// Pushes claimed chunks of this rank's keys and values, the last ones first: tiles take them in this order. All threads of a block call it.
template <int World, int Threads, Mask mask>
__device__ __forceinline__ void push_claimed(const team::Team& team, const team::Epoch& epoch,
                                             const ContextParts<World, mask>& parts, team::Claims::storage& storage,
                                             int tokens, int rows) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool sends = thread < World - 1;
  const int to = team::following<World>(team.rank, sends ? thread + 1 : 0);
  if (blockIdx.x == 0 && sends) epoch.send(to, team::rows_flag, rows);
  team::Claims claims(team, 0, storage);
  const unsigned count = static_cast<unsigned>(parts.chunks(tokens));
#pragma unroll 1
  for (unsigned claimed = claims.next(), next; claimed < count; claimed = next) {
    const int chunk = static_cast<int>(count - 1 - claimed);
    parts.template push<Threads>(epoch, chunk, tokens);
    next = claims.next();
    if (sends) epoch.send(to, chunk, rows);
  }
}

}  // namespace kiln::attention

/// grid: blocks that run at once; block and dynamic shared memory as its manifest says. The maps of q, k and v are as
/// attention_wgmma's, with one sequence a plane. The maps of keys and values show the parts of all ranks in either
/// half. `rows` of each of `batch` sequences. The first `pushers` blocks push. `section`: heads whose keys and values
/// L2 holds.
template <typename Form, int World, int tile_m, int tile_n, int stages, bool pingpong, int lazy>
__global__ void __launch_bounds__(
    kiln::attention::WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, lazy>::threads, 1)
    attention_context_fused(
        const __grid_constant__ kiln::tensor_map q_map, const __grid_constant__ kiln::tensor_map k_map,
        const __grid_constant__ kiln::tensor_map v_map, const __grid_constant__ kiln::tensor_map first_keys,
        const __grid_constant__ kiln::tensor_map first_values, const __grid_constant__ kiln::tensor_map second_keys,
        const __grid_constant__ kiln::tensor_map second_values, const __grid_constant__ kiln::view<const uint4, 1> k,
        const __grid_constant__ kiln::view<const uint4, 1> v,
        const __grid_constant__ kiln::view<typename Form::T, 1> out, float* lse, int batch, int rows, int heads,
        int key_heads, int key_words, int value_words, float scale, int most_rows, int chunk_rows, int pushers,
        int section, const __grid_constant__ kiln::team::Peers pushed_keys,
        const __grid_constant__ kiln::team::Peers pushed_values, const __grid_constant__ kiln::team::Team team) {
  using namespace kiln;
  using namespace kiln::attention;
  using Tiles = WgmmaTiling<Form, tile_m, tile_n, stages, true, pingpong, lazy>;
  using Layout = SharedLayout<Tiles>;
  constexpr int done_barrier = 7, done_threads = 64 + Tiles::consumers * warpgroup;
  char* const memory = dynamic_shared();
  const Layout shared{shared_address(memory)};
  Work* const works = reinterpret_cast<Work*>(memory + Layout::work);
  auto* const its = reinterpret_cast<ContextShared*>(memory + ContextShared::offset<Tiles>);
  const int warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);
  if (warp == 0 && elect_one()) {
    shared.make_barriers();
    its->arrivals.template open<1>();
    prefetch_tensormap(&q_map);
    prefetch_tensormap(&k_map);
    prefetch_tensormap(&v_map);
  }
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof its->came / 4); i += Tiles::threads)
    its->came[0][i] = 0;
  team::Epoch epoch(team, its->arrivals.epoch);
  if (threadIdx.x == 0) its->arrivals.failed = epoch.failed() ? 2 : 0;
  const int most_tokens = batch * most_rows, tokens = batch * rows;
  const ContextParts<World, Form::mask> parts = {
      {k.address, k.strides[0], {pushed_keys, key_words, most_tokens, chunk_rows}},
      {v.address, v.strides[0], {pushed_values, value_words, most_tokens, chunk_rows}},
      team.rank};
  if (static_cast<int>(blockIdx.x) < pushers && !epoch.failed())
    push_claimed<World, Tiles::threads>(team, epoch, parts, its->pushes, tokens, rows);
  __syncthreads();
  launch_dependents();

  const Segments<World, Form::mask> segments = {{&its->arrivals, team.rank, rows, most_rows}};
  // Not of `warp`: ptxas would ignore setmaxnreg.
  const int of_block = __shfl_sync(full_warp, threadIdx.x / warpgroup, 0);
  take_registers<Tiles::consumers, 56>(of_block == 0);  // what waits for flags needs more than what only copies
  if (of_block == 0) {
    const team::Arrivals<World> arrivals(epoch, team, &its->arrivals, chunk_rows);
    if (warp == 0) {
      const bool second = epoch.half() != 0;
      SegmentCopies<Tiles, World> copies(
          shared,
          {&q_map, &k_map, &v_map, second ? &second_keys : &first_keys, second ? &second_values : &first_values},
          segments, arrivals, its, chunk_rows);
      copy_segments<Tiles, World>(shared, works, copies, {nullptr, nullptr, batch, rows, rows}, heads,
                                  heads / key_heads, &team.control[team.rank]->claimed[1], section);
      named_barrier_sync(done_barrier, done_threads);
      if (elect_one()) epoch.end_by_one(*static_cast<const volatile int*>(&its->arrivals.failed) != 0);
    } else if (warp == 1) {
      if (elect_one()) arrivals.template count<1>();
      __syncwarp();
      named_barrier_arrive(done_barrier, done_threads);
    }
    return;
  }
  const int consumer = of_block - 1;
  const Scores<Form::soft_cap> to_scores(scale, 1.0f);
  const Results<typename Form::T> results = {{out.address, rows * out.strides[0], out.strides[0], Form::value_dim},
                                             {lse, rows, tokens}};
  SegmentRows<Tiles, World> multiplied(shared, memory, consumer, to_scores);
  RingPosition<Layout::works> at;
  if (consumer == Tiles::consumers - 1) Turns<Tiles>::pass(consumer);
#pragma unroll 1
  for (;; at.advance()) {
    const Place place = shared.works_at(at.slot);
    mbarrier_wait(place.full, at.parity);
    const Work work = agreed(works[at.slot]);
    release(place);
    if (work.exists == 0) break;
    multiplied.attend(work, segments, [&](const float(&sums)[Form::value_dim / 2], const SoftmaxRows& softmax) {
      const int row = work.row + consumer * warpgroup_rows + static_cast<int>(threadIdx.x) % warpgroup / 32 * 16 +
                      static_cast<int>(threadIdx.x) % 32 / 4;
      SoftmaxRows ended = softmax;
      const int failed = *static_cast<const volatile int*>(&its->arrivals.failed);
      if (failed > (segments.count() == 1 ? 1 : 0)) ended.sum[0] = ended.sum[1] = __uint_as_float(0x7fffffffu);
      results.template store<Tiles>(work, consumer, work.head, row, sums, ended, to_scores.rate, 1.0f, nullptr);
    });
  }
  named_barrier_arrive(done_barrier, done_threads);
}

// The tensor memory accelerator.
#include <algorithm>
#include <memory>

#include "emulator/machine.hpp"
#include "emulator/tensor_map.hpp"
#include "ptx/call.hpp"
#include "ptx/instructions.hpp"

namespace emulator::instructions {
namespace {

/// The box that [map, {x, y, ...}] names. The map is read at once: it may be the kernel's own parameter.
struct Box {
  TensorMap map;
  std::int32_t at[5] = {};

  Box(const Call& call, std::size_t operand) {
    const auto address = call.get(operand);
    if (address % 64 != 0) fault("a tensor map at address {:#x}, which is no multiple of 64", address);
    std::memcpy(&map, std::bit_cast<const void*>(address), sizeof map);
    if (!call.has(fmt::format("{}d", map.rank)) || call.size(operand) != map.rank + 1)
      fault("{} with a tensor map of {} dimensions", call.instruction().opcode, map.rank);
    for (std::uint32_t d = 0; d < map.rank; ++d) at[d] = static_cast<std::int32_t>(call.word(operand, d + 1));
  }

  /// visit(element's offset in shared memory, its address in the tensor or null) where the box begins at offset `first`.
  template <typename Visit>
  void each(unsigned first, Visit visit) const {
    each_element(map, at, [&](std::size_t place, std::byte* global) {
      visit(swizzled(first + static_cast<unsigned>(place), map.swizzle), global);
    });
  }
};

void check_alignment(unsigned offset) {
  if (offset % 128 != 0) fault("a box in shared memory at {:#x}, which is no multiple of 128", offset);
}

/// To one block, at some later time; outside of the tensor lie zeros.
void load(Block& block, const Box& box, unsigned offset, unsigned barrier_offset) {
  Mbarrier& barrier = block.mbarrier_at(barrier_offset);
  if (!barrier.fenced) fault("a load reports to an mbarrier which fence.mbarrier_init has not made known");
  ++block.loads_in_flight;
  block.cluster.in_flight.begin([&block, &barrier, box, offset] {
    const std::size_t bytes = box.map.element_bytes;
    box.each(offset, [&](unsigned to, const std::byte* from) {
      for (std::byte* view : {block.shared.at(to, bytes, bytes), block.shared.asynchronous_at(to, bytes, bytes)}) {
        if (from == nullptr) {
          std::memset(view, 0, bytes);
        } else {
          std::memcpy(view, from, bytes);
        }
      }
    });
    --block.loads_in_flight;
    barrier.complete(static_cast<std::int64_t>(box.map.box_bytes()));
  });
}

}  // namespace

/// cp.async.bulk [to], [from], bytes, [barrier]: neighbours, to this block at some later time.
void bulk_load(Call& call) {
  const unsigned to = call.word(0), bytes = call.word(2), barrier_offset = SharedMemory::offset_of(call.word(3));
  const auto from = call.get(1);
  if (to % 16 != 0 || from % 16 != 0 || bytes % 16 != 0)
    fault("a bulk copy of {} bytes from {:#x} to {:#x}, not all multiples of 16", bytes, from, to);
  if (current().acquired) fault("a bulk copy after a flag was acquired, and no fence.proxy.async.global in between");
  static_cast<void>(own_shared(to, bytes, 16));
  Block& block = current_block();
  Mbarrier& barrier = block.mbarrier_at(barrier_offset);
  if (!barrier.fenced) fault("a load reports to an mbarrier which fence.mbarrier_init has not made known");
  ++block.loads_in_flight;
  block.cluster.in_flight.begin([&block, &barrier, offset = SharedMemory::offset_of(to), from, bytes] {
    for (std::byte* view : {block.shared.at(offset, bytes, 16), block.shared.asynchronous_at(offset, bytes, 16)})
      std::memcpy(view, std::bit_cast<const void*>(from), bytes);
    --block.loads_in_flight;
    barrier.complete(static_cast<std::int64_t>(bytes));
  });
}

/// cp.reduce.async.bulk [to], [from], bytes: reads shared memory at some later time, and adds to each float of `to` still later.
void bulk_add(Call& call) {
  if (!call.has("add") || !call.has("f32"))
    fault("the emulator does not know the instruction {}", call.instruction().opcode);
  const unsigned from = call.word(1), bytes = call.word(2), offset = SharedMemory::offset_of(from);
  const auto to = call.get(0);
  if (to % 16 != 0 || from % 16 != 0 || bytes % 16 != 0)
    fault("a bulk sum of {} bytes from {:#x} to {:#x}, not all multiples of 16", bytes, from, to);
  static_cast<void>(own_shared(from, bytes, 16));
  Thread& thread = current();
  Block& block = *thread.block;
  const auto values = std::make_shared<std::vector<float>>(bytes / sizeof(float));
  const TaskPointer read = block.cluster.in_flight.begin([&block, offset, bytes, values] {
    std::memcpy(values->data(), block.shared.asynchronous_at(offset, bytes, 16), bytes);
  });
  thread.store_reads.add(read);
  thread.store_writes.add(block.cluster.in_flight.begin([read, to, values] {
    read->run();
    auto* const sums = std::bit_cast<float*>(to);
    for (std::size_t i = 0; i < values->size(); ++i) sums[i] += (*values)[i];
  }));
}

/// cp.async.bulk [to], [from], bytes: reads shared memory at some later time, and writes global memory still later.
void bulk_store(Call& call) {
  const unsigned from = call.word(1), bytes = call.word(2), offset = SharedMemory::offset_of(from);
  const auto to = call.get(0);
  if (to % 16 != 0 || from % 16 != 0 || bytes % 16 != 0)
    fault("a bulk copy of {} bytes from {:#x} to {:#x}, not all multiples of 16", bytes, from, to);
  static_cast<void>(own_shared(from, bytes, 16));
  Thread& thread = current();
  Block& block = *thread.block;
  const auto held = std::make_shared<std::vector<std::byte>>(bytes);
  const TaskPointer read = block.cluster.in_flight.begin([&block, offset, bytes, held] {
    std::memcpy(held->data(), block.shared.asynchronous_at(offset, bytes, 16), bytes);
  });
  thread.store_reads.add(read);
  thread.store_writes.add(block.cluster.in_flight.begin([read, to, held] {
    read->run();
    std::memcpy(std::bit_cast<void*>(to), held->data(), held->size());
  }));
}

void tma_load(Call& call) {
  Cluster& cluster = current_cluster();
  const unsigned to = call.word(0), barrier = call.word(2);
  const unsigned offset = SharedMemory::offset_of(to), barrier_offset = SharedMemory::offset_of(barrier);
  const Box box(call, 1);
  check_alignment(offset);
  if (current().acquired) fault("a TMA load after a flag was acquired, and no fence.proxy.async.global in between");
  cluster.most_rows_outside = std::max(cluster.most_rows_outside, rows_outside(box.map, box.at));
  if (!call.has("multicast::cluster")) {
    if (SharedMemory::rank_of(to) != SharedMemory::rank_of(barrier))
      fault("a load to one block reports to another's mbarrier");
    return load(cluster.block_at(to), box, offset, barrier_offset);
  }
  const unsigned ranks = call.word(3) & 0xffffu;
  if (ranks == 0 || ranks >> cluster.blocks.size() != 0)
    fault("a multicast to blocks {:#x} of a cluster of {}", ranks, cluster.blocks.size());
  for (unsigned rank = 0; rank < cluster.blocks.size(); ++rank) {
    if ((ranks >> rank & 1) != 0) load(cluster.block_at(rank << SharedMemory::rank_shift), box, offset, barrier_offset);
  }
}

void tma_store(Call& call) {
  const Box box(call, 0);
  const unsigned from = call.word(1), offset = SharedMemory::offset_of(from);
  check_alignment(offset);
  static_cast<void>(own_shared(from, box.map.box_bytes(), 1));
  Thread& thread = current();
  Block& block = *thread.block;
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  const TaskPointer read = block.cluster.in_flight.begin([&block, box, offset, bytes] {
    const std::size_t width = box.map.element_bytes;
    box.each(offset, [&](unsigned at, const std::byte*) {
      const std::byte* const element = block.shared.asynchronous_at(at, width, width);
      bytes->insert(bytes->end(), element, element + width);
    });
  });
  thread.store_reads.add(read);
  thread.store_writes.add(block.cluster.in_flight.begin([read, box, bytes] {
    read->run();
    each_element(box.map, box.at, [&](std::size_t place, std::byte* to) {
      if (to != nullptr) std::memcpy(to, bytes->data() + place, box.map.element_bytes);
    });
  }));
}

void bulk_commit(Call&) {
  current().store_reads.commit();
  current().store_writes.commit();
}

void bulk_wait(Call& call) {
  current().store_reads.wait(call.get(0));
  if (!call.has("read")) current().store_writes.wait(call.get(0));
}

void fence_proxy_async(Call&) { current_block().shared.publish(); }
void fence_proxy_async_global(Call&) { current().acquired = false; }

void createpolicy(Call& call) { call.set(0, 0); }

}  // namespace emulator::instructions

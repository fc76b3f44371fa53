#include "emulator/machine.hpp"

namespace emulator {

Block::Block(Cluster& of, unsigned its_rank, uint3 its_index, unsigned count, unsigned dynamic_bytes)
    : cluster(of), rank(its_rank), index(its_index), shared(its_rank, dynamic_bytes), threads(count), live(count) {
  for (unsigned i = 0; i < count; ++i) {
    threads[i].block = this;
    threads[i].number = i;
  }
}

Mbarrier& Block::mbarrier_at(unsigned offset) {
  const auto found = mbarriers.find(offset);
  if (found == mbarriers.end())
    fault("no mbarrier was made at shared address {:#x} of block {} of its cluster", offset, rank);
  return found->second;
}

unsigned Cluster::live() const {
  unsigned sum = 0;
  for (const Block& block : blocks) sum += block.live;
  return sum;
}

Block& Cluster::block_at(unsigned address) {
  const unsigned rank = SharedMemory::rank_of(address);
  if (rank >= blocks.size())
    fault("shared address {:#x} is in block {} of a cluster of {}", address, rank, blocks.size());
  if (blocks[rank].ended()) fault("shared address {:#x} is in block {} of the cluster, which has ended", address, rank);
  return blocks[rank];
}

std::byte* Cluster::at(unsigned address, std::size_t bytes, std::size_t alignment) {
  return block_at(address).shared.at(SharedMemory::offset_of(address), bytes, alignment);
}

std::byte* own_shared(unsigned address, std::size_t bytes, std::size_t alignment) {
  Block& block = current_block();
  if (SharedMemory::rank_of(address) != block.rank)
    fault("shared address {:#x} is another block's, and this instruction reaches its own only", address);
  return block.shared.at(SharedMemory::offset_of(address), bytes, alignment);
}

}  // namespace emulator

// Loads, stores and copies by single threads.
#include <bit>

#include "emulator/machine.hpp"
#include "ptx/call.hpp"
#include "ptx/instructions.hpp"

namespace emulator::instructions {
namespace {

struct Raised final : Wait {
  explicit Raised(const unsigned* of) : flag(of) {}
  [[nodiscard]] bool over() override { return *flag != 0; }
  [[nodiscard]] std::string text() const override {
    return fmt::format("the flag at {}", static_cast<const void*>(flag));
  }
  const unsigned* flag;
};

}  // namespace

void mapa(Call& call) {
  const unsigned rank = call.word(2);
  if (rank >= current_cluster().blocks.size())
    fault("mapa to block {} of a cluster of {}", rank, current_cluster().blocks.size());
  call.set(SharedMemory::offset_of(call.word(1)) | rank << SharedMemory::rank_shift, 0);
}

/// f32 and b32, alone or as vectors.
void ld_shared(Call& call) {
  const std::size_t bytes = call.size(0) * sizeof(float);
  const std::byte* from = call.has("shared::cluster") ? current_cluster().at(call.word(1), bytes, bytes)
                                                      : own_shared(call.word(1), bytes, bytes);
  for (std::size_t j = 0; j < call.size(0); ++j) {
    float value = 0;
    std::memcpy(&value, from + j * sizeof value, sizeof value);
    call.set_number(value, 0, j);
  }
}

/// Kernels read flags until they are raised: so this waits until it is.
void ld_acquire(Call& call) {
  const auto* const flag = std::bit_cast<const unsigned*>(call.get(1));
  await(Raised(flag));
  call.set(*flag, 0);
  current().acquired = true;
}

/// Writes are seen at once.
void st_release(Call& call) { *std::bit_cast<unsigned*>(call.get(0)) = call.word(1); }

/// Kernels that read such flags give up at some time, by themselves: so this returns what is there, after others went first.
void ld_acquire_system(Call& call) {
  pause();
  call.set(*std::bit_cast<const std::uint64_t*>(call.get(1)), 0);
  current().acquired = true;
}
void st_release_system(Call& call) {
  if (current().store_writes.closed() > 1)
    fault("a flag is raised, and before the last group of this thread's bulk stores there are others not waited for");
  *std::bit_cast<std::uint64_t*>(call.get(0)) = call.get(1);
}

/// Kernels read such words until they came, and give up at some time, as of flags.
void ld_relaxed_system(Call& call) {
  pause();
  for (std::size_t j = 0; j < call.size(0); ++j) {
    unsigned part = 0;
    std::memcpy(&part, std::bit_cast<const std::byte*>(call.get(1)) + j * sizeof part, sizeof part);
    call.set(part, 0, j);
  }
}
/// Parts come one by one: threads change places between them.
void st_relaxed_system(Call& call) {
  if (call.has("u64")) {
    *std::bit_cast<std::uint64_t*>(call.get(0)) = call.get(1);
    return;
  }
  for (std::size_t j = 0; j < call.size(1); ++j) {
    const unsigned part = call.word(1, j);
    std::memcpy(std::bit_cast<std::byte*>(call.get(0)) + j * sizeof part, &part, sizeof part);
    maybe_pause();
  }
}

/// Adds floats one by one. Threads change places before, so that sums are taken in other orders.
void red(Call& call) {
  if (!call.has("f32")) fault("the emulator does not know the instruction {}", call.instruction().opcode);
  const auto address = call.get(0);
  if (address % (call.size(1) * sizeof(float)) != 0) fault("red of {} floats at address {:#x}", call.size(1), address);
  maybe_pause();
  auto* const to = std::bit_cast<float*>(address);
  for (std::size_t j = 0; j < call.size(1); ++j) to[j] += call.number(1, j);
}

/// Of two floats, which arrive at some later time. PTX requires %cluster_nctarank > 1.
void st_async(Call& call) {
  const unsigned to = call.word(0), barrier = call.word(2);
  const uint2 values{call.word(1, 0), call.word(1, 1)};
  Cluster& cluster = current_cluster();
  if (cluster.blocks.size() == 1) fault("st.async in a cluster of one block, where PTX does not define it");
  Block& block = cluster.block_at(to);
  if (&cluster.block_at(barrier) != &block) fault("st.async to one block reports to another's mbarrier");
  Mbarrier& reported = block.mbarrier_at(SharedMemory::offset_of(barrier));
  ++block.loads_in_flight;
  cluster.in_flight.begin([&block, to, values, &reported] {
    std::memcpy(block.shared.at(SharedMemory::offset_of(to), sizeof values, sizeof values), &values, sizeof values);
    --block.loads_in_flight;
    reported.complete(sizeof values);
  });
}

/// Reads as many bytes of global memory as are asked for, and writes zeros for the others.
void cp_async(Call& call) {
  const std::size_t bytes = call.get(2), read = call.size() > 3 ? call.get(3) : bytes;
  const auto from = call.get(1);
  if (read > bytes) fault("cp.async reads {} bytes to write {}", read, bytes);
  if (from % bytes != 0) fault("cp.async of {} bytes from address {:#x}", bytes, from);
  std::byte* const to = own_shared(call.word(0), bytes, bytes);
  Thread& thread = current();
  thread.copies.add(thread.block->cluster.in_flight.begin([to, from, bytes, read] {
    std::memset(to, 0, bytes);
    if (read > 0) std::memcpy(to, std::bit_cast<const std::byte*>(from), read);
  }));
}

void cp_async_commit(Call&) { current().copies.commit(); }

void cp_async_wait(Call& call) {
  Thread& thread = current();
  if (call.has("wait_all")) thread.copies.commit();
  thread.copies.wait(call.has("wait_all") ? 0 : call.get(0));
}

}  // namespace emulator::instructions

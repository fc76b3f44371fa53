// How fast multiprocessors store into a peer's memory, one way and both ways at once.
#include <algorithm>
#include <vector>

#include "team_probe/items.hpp"
#include "team_probe/member.hpp"

namespace kiln::bench {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{256} << 20;
constexpr unsigned seed = 7;
constexpr unsigned chunk_of_vectors = 16;

struct Variant {
  const char* store;   // "bulk" or "vector"
  const char* source;  // "constant": registers or shared memory; "memory": 256 MiB of device memory
  std::string kernel;
  unsigned chunk_bytes;
  unsigned stages;

  [[nodiscard]] Grid grid(unsigned blocks) const {
    // More than half of a multiprocessor's shared memory: no two blocks share one.
    constexpr unsigned alone = 120u << 10;
    const bool bulk = chunk_bytes != chunk_of_vectors;
    return {blocks, bulk ? 32u : 1024u, bulk ? std::max(alone, stages * (chunk_bytes + 8)) : alone};
  }
  [[nodiscard]] std::string fields(unsigned blocks) const {
    return fmt::format(R"("store":"{}","source":"{}","blocks":{},"chunk_bytes":{},"stages":{})", store, source, blocks,
                       chunk_bytes, stages);
  }
};

Variant bulk_copy(unsigned chunk_bytes, unsigned stages) {
  return {"bulk", "memory", fmt::format("push_bulk_copy_{}", stages), chunk_bytes, stages};
}

const std::vector<Variant> variants = {
    {"bulk", "constant", "push_bulk_constant", 2048, 1},
    {"bulk", "constant", "push_bulk_constant", 8192, 1},
    {"bulk", "constant", "push_bulk_constant", 16384, 1},
    {"bulk", "constant", "push_bulk_constant", 32768, 1},
    bulk_copy(2048, 16),  // 32 KiB of shared memory
    bulk_copy(8192, 4),
    bulk_copy(16384, 2),
    bulk_copy(2048, 32),  // 64 KiB
    bulk_copy(8192, 24),  // 192 KiB
    bulk_copy(16384, 12),
    bulk_copy(32768, 6),
    {"vector", "constant", "push_vector_constant", chunk_of_vectors, 1},
    {"vector", "memory", "push_vector_copy", chunk_of_vectors, 1},
};

class Pusher {
 public:
  explicit Pusher(const Side& side) : member(side.rank, side.ordinal, side.link, buffer_bytes) {
    member.fill(source_.pointer(), buffer_bytes, seed);
    stopped_.fill_bytes(0, member.stream.handle());
    member.stream.synchronize();
  }
  void launch(const Variant& variant, unsigned blocks) const {
    member.launch(variant.kernel, variant.grid(blocks), member.peers.pointer(), source_.pointer(),
                  static_cast<unsigned long long>(buffer_bytes), variant.chunk_bytes, stopped_.pointer());
  }
  [[nodiscard]] bool stopped() const {
    unsigned value = 0;
    stopped_.copy_to_host(&value, sizeof value, member.stream.handle());
    return value != 0;
  }

  Member member;

 private:
  cuda::Buffer source_{static_cast<std::int64_t>(buffer_bytes)};
  cuda::Buffer stopped_{16};
};

double gb_per_second(double ns) { return static_cast<double>(buffer_bytes) / ns; }

/// Copies once with all multiprocessors, and has the peer count what did not arrive.
void verify(const Pusher& pusher, const Variant& variant) {
  const Member& member = pusher.member;
  if (member.rank == 1) {
    cuda::check(cuda::Driver::get().cuMemsetD8Async(member.own.pointer(), 0, buffer_bytes, member.stream.handle()),
                "cuMemsetD8Async");
    member.stream.synchronize();
  }
  member.link.meet();
  if (member.rank == 0) {
    pusher.launch(variant, 132);
    member.stream.synchronize();
  }
  member.link.meet();
  if (member.rank == 1) {
    CUresult result = CUDA_SUCCESS;
    member.link.send(member.wrong_words(member.own.pointer(), buffer_bytes, seed, result));
    cuda::check(result, "counting wrong words");
  } else {
    print_line("push_check", R"({},"wrong_words":{})", variant.fields(132), member.link.receive());
  }
}

void push_at_once(const Pusher& pusher, const Variant& variant, unsigned blocks) {
  constexpr int repetitions = 32;  // so long that the ranks' difference in starting does not count
  const Member& member = pusher.member;
  const auto work = [&] { pusher.launch(variant, blocks); };
  work();
  member.stream.synchronize();
  member.link.meet();
  const double ns = member.once_ns(work, repetitions);
  if (member.rank == 1) return member.link.send(static_cast<std::int64_t>(ns));
  const auto peers_ns = static_cast<double>(member.link.receive());
  print_line(
      "push_both_ways", R"({},"bytes_each":{},"ns":{:.0f},"peers_ns":{:.0f},"gb_per_second_each":{:.1f},"stopped":{})",
      variant.fields(blocks), buffer_bytes, ns, peers_ns, gb_per_second(std::max(ns, peers_ns)), pusher.stopped());
}

}  // namespace

void push(const Side& side) {
  const Pusher pusher(side);
  for (const Variant& variant : variants) {
    for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 24u, 32u, 48u, 64u, 96u, 132u}) {
      if (side.rank != 0) continue;
      const double ns = pusher.member.median_ns([&] { pusher.launch(variant, blocks); });
      print_line("push", R"({},"bytes":{},"ns":{:.0f},"gb_per_second":{:.1f},"stopped":{})", variant.fields(blocks),
                 buffer_bytes, ns, gb_per_second(ns), pusher.stopped());
    }
  }
  for (const Variant& variant : variants)
    if (variant.source == std::string("memory")) verify(pusher, variant);
  side.link.meet();
}

void push_both_ways(const Side& side) {
  const Pusher pusher(side);
  for (const Variant& variant : {variants[2], bulk_copy(16384, 2), bulk_copy(16384, 12), variants.back()})
    for (const unsigned blocks : {8u, 16u, 32u, 132u}) push_at_once(pusher, variant, blocks);
  side.link.meet();
}

}  // namespace kiln::bench

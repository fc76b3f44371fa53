// How fast the copy engine writes into a peer's memory.
#include <algorithm>
#include <cmath>

#include "team_probe/items.hpp"
#include "team_probe/member.hpp"

namespace kiln::bench {
namespace {

constexpr std::size_t largest_bytes = std::size_t{256} << 20;

double median_alone_ns(const Member& member, const std::function<void()>& work) {
  std::array<double, 5> samples{};
  for (double& sample : samples) {
    sample = member.once_ns(work, 1);
    member.stream.synchronize();
  }
  std::nth_element(samples.begin(), samples.begin() + 2, samples.end());
  return samples[2];
}

void copy_of(const Member& member, CUdeviceptr source, std::size_t bytes) {
  const auto work = [&] {
    cuda::check(cuda::Driver::get().cuMemcpyDtoDAsync_v2(member.peers.pointer(), source, bytes, member.stream.handle()),
                "cuMemcpyDtoDAsync");
  };
  const auto rate = [&](double ns) { return static_cast<double>(bytes) / ns; };
  constexpr double both_last_ns = 2e7;
  std::int64_t repetitions = 0;
  if (member.rank == 0) {
    const double ns = member.median_ns(work), alone_ns = median_alone_ns(member, work);
    print_line("copy_engine", R"("bytes":{},"ns":{:.0f},"gb_per_second":{:.1f},"alone_ns":{:.0f})", bytes, ns, rate(ns),
               alone_ns);
    repetitions = std::clamp(static_cast<std::int64_t>(std::ceil(both_last_ns / std::max(ns, 100.0))), std::int64_t{1},
                             std::int64_t{2000});
    member.link.send(repetitions);
  } else {
    repetitions = member.link.receive();
    work();
    member.stream.synchronize();
  }
  member.link.meet();
  const double ns = member.once_ns(work, static_cast<int>(repetitions));
  if (member.rank == 1) return member.link.send(static_cast<std::int64_t>(ns));
  const auto peers_ns = static_cast<double>(member.link.receive());
  print_line("copy_engine_both_ways", R"("bytes_each":{},"ns":{:.0f},"peers_ns":{:.0f},"gb_per_second_each":{:.1f})",
             bytes, ns, peers_ns, rate(std::max(ns, peers_ns)));
}

}  // namespace

void copy(const Side& side) {
  const Member member(side.rank, side.ordinal, side.link, largest_bytes);
  const cuda::Buffer source(static_cast<std::int64_t>(largest_bytes));
  source.fill_bytes(1, member.stream.handle());
  member.stream.synchronize();
  for (std::size_t bytes = std::size_t{64} << 10; bytes <= largest_bytes; bytes *= 4)
    copy_of(member, source.pointer(), bytes);
  side.link.meet();
}

}  // namespace kiln::bench

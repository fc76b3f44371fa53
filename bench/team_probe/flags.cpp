// How long a flag takes to a peer and back, alone and behind data, and whether the data is there when the flag is.
#include "kiln/error.hpp"
#include "team_probe/items.hpp"
#include "team_probe/member.hpp"

namespace kiln::bench {
namespace {

constexpr CUdeviceptr data_offset = 65536;
constexpr unsigned warm = 100, rounds = 1000;

struct Ends {  // as in kernels.cuh
  CUdeviceptr own_flag, peers_flag, own_data, peers_data;
};
struct RoundTrip {  // as in kernels.cuh
  unsigned long long ns;
  unsigned rounds, wrong, stopped;
};

RoundTrip run_exchange(const Member& member, const char* kernel) {
  const cuda::Buffer result(sizeof(RoundTrip));
  result.fill_bytes(0, member.stream.handle());
  cuda::check(cuda::Driver::get().cuMemsetD8Async(member.own.pointer(), 0, member.own.bytes(), member.stream.handle()),
              "cuMemsetD8Async");
  member.stream.synchronize();
  member.link.meet();
  const CUdeviceptr own = member.own.pointer(), peers = member.peers.pointer();
  member.launch(kernel, {1, 128, 0}, static_cast<unsigned>(member.rank),
                Ends{own, peers, own + data_offset, peers + data_offset}, warm, rounds, result.pointer());
  RoundTrip found{};
  result.copy_to_host(&found, sizeof found, member.stream.handle());
  return found;
}

void exchange(const Member& member, const char* kernel, unsigned data_bytes, bool checked) {
  for (int run = 0; run < 3; ++run) {
    const RoundTrip found = run_exchange(member, kernel);
    if (member.rank == 1) {
      member.link.send(found.wrong);
      continue;
    }
    const std::int64_t wrong = member.link.receive();
    print_line(
        "flag_round_trip",
        R"("data_bytes":{},"checked":{},"run":{},"rounds":{},"ns_per_round":{:.0f},"wrong_words":{},"stopped":{})",
        data_bytes, checked, run, found.rounds, found.rounds == 0 ? 0.0 : static_cast<double>(found.ns) / found.rounds,
        wrong, found.stopped != 0);
  }
}

}  // namespace

void flags(const Side& side) {
  const Member member(side.rank, side.ordinal, side.link, std::size_t{2} << 20);
  exchange(member, "exchange_flag", 0, false);
  exchange(member, "exchange_2k", 2048, false);
  exchange(member, "exchange_16k", 16384, false);
  exchange(member, "exchange_16k_checked", 16384, true);
  side.link.meet();
}

}  // namespace kiln::bench

#include "twins/vendor_collective.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "twins/elements.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

using Share = CollectiveBoard::Place;

std::string_view sum_type(unsigned type) {
  switch (type) {
    case 6: return "kiln::f16";
    case 7: return "float";
    case 9: return "kiln::bf16";
    default: return "";
  }
}

/// Whether every rank has come to `least` before this rank's communicator was aborted.
bool all_have(const VendorCollective& of, std::atomic<std::int64_t> Share::*count, std::int64_t least) {
  for (int rank = 0; rank < of.world; ++rank)
    while ((of.board->places[rank].*count) < least) {
      if (*of.aborted) return false;
      usleep(20);
    }
  return true;
}

/// Sums in the order of the ranks, and rounds at each step, as a ring does.
void add_up(const Invocation& call, const VendorCollective& of, std::int64_t first) {
  with_element(sum_type(of.type), [&]<typename T>(T) {
    T* y = call.at<T>(of.destination, of.count);
    const auto part = [&](int rank) { return reinterpret_cast<const T*>(of.board->places[rank].bytes) + first; };
    for (std::int64_t i = 0; i < of.count; ++i) {
      T sum = part(0)[i];
      for (int rank = 1; rank < of.world; ++rank) sum = from_double<T>(to_double(sum) + to_double(part(rank)[i]));
      y[i] = sum;
    }
  });
}

void take_parts(const Invocation& call, const VendorCollective& of) {
  auto* y = call.at<std::byte>(of.destination, of.world * of.count);
  for (int rank = 0; rank < of.world; ++rank)
    std::memcpy(y + rank * of.count, of.board->places[rank].bytes, static_cast<std::size_t>(of.count));
}

}  // namespace

Traffic vendor_collective(const Invocation& call) {
  const auto of = call.value<VendorCollective>(0);
  const bool scatters = of.kind == VendorCollective::Kind::reduce_scatter;
  const std::int64_t element = of.kind == VendorCollective::Kind::all_gather ? 1 : element_bytes(sum_type(of.type));
  const std::int64_t bytes = of.count * element * (scatters ? of.world : 1);
  require(bytes <= CollectiveBoard::most_bytes, CUDA_ERROR_LAUNCH_FAILED);
  Share& own = of.board->places[of.rank];
  const Traffic traffic{static_cast<double>(of.world * bytes), 0, 1};
  const std::int64_t now = own.given + 1;
  if (!all_have(of, &Share::taken, now - 1)) return traffic;
  std::memcpy(own.bytes, call.at<const std::byte>(of.source, bytes), static_cast<std::size_t>(bytes));
  own.given = now;
  if (!all_have(of, &Share::given, now)) return traffic;
  if (of.kind == VendorCollective::Kind::all_gather)
    take_parts(call, of);
  else
    add_up(call, of, scatters ? of.rank * of.count : 0);
  own.taken = now;
  return traffic;
}

}  // namespace fake_cuda

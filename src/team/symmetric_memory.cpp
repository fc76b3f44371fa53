#include "team/symmetric_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kiln/error.hpp"
#include "team/exchange.hpp"

namespace kiln::team {
namespace {

void require_same_bytes(Rendezvous& rendezvous, std::int64_t bytes) {
  const std::vector<std::string> all = rendezvous.all_gather(std::to_string(bytes));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all.front() || bytes < 1)
      throw Error(
          ErrorKind::bad_input,
          fmt::format("Team '{}': rank {} asks for {} bytes of symmetric memory, rank 0 for {}; all ask for the "
                      "same, 1 or more.",
                      rendezvous.membership().name, rank, all[rank], all.front()));
}

void fill_with_zeros(const cuda::SharedAllocation& allocation) {
  const cuda::Stream stream;
  cuda::check(cuda::Driver::get().cuMemsetD8Async(allocation.pointer(), 0, allocation.bytes(), stream.handle()),
              "clearing symmetric memory");
  stream.synchronize();
}

}  // namespace

SymmetricMemory::SymmetricMemory(Rendezvous& rendezvous, const cuda::Context& context, std::int64_t bytes)
    : bytes_(bytes) {
  require_same_bytes(rendezvous, bytes);
  const int ordinal = context.info().ordinal, own_rank = rendezvous.membership().rank;
  std::optional<cuda::SharedAllocation> own;
  std::size_t mapped_bytes = 0;
  Descriptor exported;
  on_all_ranks(rendezvous, "allocating symmetric memory", [&] {
    own.emplace(cuda::SharedAllocation::create(static_cast<std::size_t>(bytes), ordinal));
    mapped_bytes = own->bytes();
    fill_with_zeros(*own);
    exported = Descriptor(own->descriptor());
  });
  const std::vector<Descriptor> received = rendezvous.exchange(exported.get());
  on_all_ranks(rendezvous, "mapping the ranks' memory", [&] {
    for (int rank = 0; rank < rendezvous.membership().world; ++rank) {
      const Descriptor& descriptor = received[static_cast<std::size_t>(rank)];
      allocations_.push_back(
          rank == own_rank ? std::move(*own) : cuda::SharedAllocation::import(descriptor.get(), mapped_bytes, ordinal));
      addresses_.push_back(allocations_.back().pointer());
    }
  });
}

void SymmetricMemory::close(Rendezvous& rendezvous) {
  CUresult first = CUDA_SUCCESS;
  for (cuda::SharedAllocation& each : allocations_)
    if (const CUresult result = each.close(); first == CUDA_SUCCESS) first = result;
  allocations_.clear();
  addresses_.clear();
  on_all_ranks(rendezvous, "unmapping symmetric memory", [&] { cuda::check(first, "unmapping"); });
}

}  // namespace kiln::team

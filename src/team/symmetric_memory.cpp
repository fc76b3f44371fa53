#include "team/symmetric_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kiln/error.hpp"
#include "team/exchange.hpp"
#include "team/protocol.hpp"

namespace kiln::team {
namespace {

/// Every rank judges from what all gave, so that all come to the same error.
void require_same_bytes(Rendezvous& rendezvous, std::int64_t bytes) {
  const std::vector<std::string> all = rendezvous.all_gather(std::to_string(bytes));
  const auto unlike = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each != all.front(); });
  if (unlike == all.end() && bytes >= 1) return;
  const auto rank = unlike == all.end() ? 0 : unlike - all.begin();
  throw Error(ErrorKind::bad_input,
              fmt::format("team '{}': rank {} asks for {} bytes of symmetric memory, rank 0 for {}; all ask for the "
                          "same, 1 or more",
                          rendezvous.membership().name, rank, all[static_cast<std::size_t>(rank)], all.front()));
}

/// Returns what each rank maps of every other's memory: `bytes`, in whole units of the device that has the largest.
/// Units are powers of two, so that the others' divide it.
std::size_t whole_units(Rendezvous& rendezvous, std::int64_t bytes, int ordinal) {
  std::size_t largest = 1;
  for (const std::string& unit : gather_on_all_ranks(rendezvous, "asking for the unit of memory", [&] {
         return std::to_string(cuda::granularity(ordinal, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
       }))
    largest = std::max(largest, static_cast<std::size_t>(std::stoull(unit)));
  return (static_cast<std::size_t>(bytes) + largest - 1) / largest * largest;
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
  const std::size_t mapped_bytes = whole_units(rendezvous, allocated_bytes(bytes), ordinal);
  std::optional<cuda::SharedAllocation> own;
  Descriptor exported;
  on_all_ranks(rendezvous, "allocating symmetric memory", [&] {
    own.emplace(cuda::SharedAllocation::create(mapped_bytes, ordinal));
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

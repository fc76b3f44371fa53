#include "team/introduction.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/device.hpp"
#include "kiln/error.hpp"
#include "kiln/team_nccl.hpp"
#include "team/link.hpp"

namespace kiln::team {
namespace {

constexpr std::chrono::milliseconds between_looks_at_nccl{1};

/// What a rank tells the others.
struct Introduction {
  std::array<char, 72> host{}, boot{}, name{};  // zero-terminated; rank 0's name is the team's
  std::int32_t asked = 0;                       // TeamOptions::device, else the communicator's
  std::int32_t device = 0;                      // the communicator's
};
static_assert(sizeof(Introduction) == 224);

void put(std::array<char, 72>& field, const std::string& text) { text.copy(field.data(), field.size() - 1); }
std::string text_of(const std::array<char, 72>& field) { return field.data(); }

/// A communicator with what it says of itself.
class Communicator {
 public:
  Communicator(const cuda::Nccl& nccl, ncclComm_t handle) : nccl_(nccl), handle_(handle) {
    if (handle == nullptr) throw Error(ErrorKind::bad_input, "a team was asked for of a null NCCL communicator");
    require(nccl.ncclCommUserRank(handle, &rank_), "ncclCommUserRank");
    require(nccl.ncclCommCount(handle, &world_), "ncclCommCount");
    require(nccl.ncclCommCuDevice(handle, &device_), "ncclCommCuDevice");
  }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int world() const noexcept { return world_; }
  [[nodiscard]] int device() const noexcept { return device_; }

  /// Returns what each rank gave, by rank.
  [[nodiscard]] std::vector<Introduction> gather(const Introduction& own, std::chrono::milliseconds timeout) const {
    auto context = std::make_unique<cuda::Context>(device_);
    const cuda::Context::Scope scope(*context);
    auto transfer = std::make_unique<Transfer>(world_);
    const CUstream stream = transfer->stream.handle();
    transfer->source.copy_from_host(&own, sizeof own, stream);
    try {
      require(nccl_.ncclAllGather(pointer(transfer->source), pointer(transfer->destination), sizeof own, ncclUint8,
                                  handle_, stream),
              "ncclAllGather");
      await(stream, timeout);
    } catch (...) {  // NCCL's kernel may still run, and use them
      static_cast<void>(transfer.release());
      static_cast<void>(context.release());
      throw;
    }
    std::vector<Introduction> all(static_cast<std::size_t>(world_));
    transfer->destination.copy_to_host(all.data(), transfer->destination.bytes(), stream);
    return all;
  }

 private:
  struct Transfer {
    explicit Transfer(int world)
        : source(sizeof(Introduction)), destination(world * static_cast<std::int64_t>(sizeof(Introduction))) {}
    cuda::Stream stream;
    cuda::Buffer source, destination;
  };

  static void* pointer(const cuda::Buffer& buffer) { return reinterpret_cast<void*>(buffer.pointer()); }

  /// ncclInProgress is what a communicator answers that does not block.
  void require(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw Error(result == ncclInvalidArgument ? ErrorKind::bad_input : ErrorKind::team_failed,
                fmt::format("a team was asked for of an NCCL communicator, and {} gave '{}'; give a communicator that "
                            "{} made and that has not failed",
                            what, nccl_.ncclGetErrorString(result), nccl_.path));
  }

  void await(CUstream stream, std::chrono::milliseconds timeout) const {
    for (const auto end = end_after(timeout);; std::this_thread::sleep_for(between_looks_at_nccl)) {
      ncclResult_t state = ncclSuccess;
      require(nccl_.ncclCommGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
      require(state, "ncclAllGather");
      if (state == ncclSuccess) {  // then the stream has all of it
        const CUresult ended = cuda::Driver::get().cuStreamQuery(stream);
        if (ended == CUDA_SUCCESS) return;
        if (ended != CUDA_ERROR_NOT_READY) cuda::check(ended, "ncclAllGather");
      }
      if (Clock::now() >= end)
        throw Error(ErrorKind::team_failed,
                    fmt::format("rank {} of an NCCL communicator asked for a team of its {} ranks; not all of them "
                                "came within {} ms. Call team_from_nccl on each",
                                rank_, world_, timeout.count()));
    }
  }

  const cuda::Nccl& nccl_;
  ncclComm_t handle_;
  int rank_ = 0, world_ = 0, device_ = 0;
};

void refuse_other_hosts(const std::vector<Introduction>& all) {
  const auto host_of = [](const Introduction& each) { return Host{text_of(each.host), text_of(each.boot)}; };
  const auto elsewhere = std::find_if(
      all.begin(), all.end(), [&](const Introduction& each) { return !is_same(host_of(each), host_of(all.front())); });
  if (elsewhere == all.end()) return;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("a team was asked for of an NCCL communicator of {} ranks on several hosts: rank 0 is on {}, "
                  "rank {} on {}. Give TeamOptions::address, HOST:PORT of rank 0's host, for a team that speaks "
                  "through NCCL alone, or a communicator of one host's ranks, as ncclCommSplit makes",
                  all.size(), host_of(all.front()).name, elsewhere - all.begin(), host_of(*elsewhere).name));
}

void refuse_other_devices(const std::vector<Introduction>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].asked != all[rank].device)
      throw Error(ErrorKind::bad_input,
                  fmt::format("a team was asked for of an NCCL communicator: rank {} gave TeamOptions::device {}, and "
                              "its communicator is on device {}; give that one or none",
                              rank, all[rank].asked, all[rank].device));
}

}  // namespace

Host this_host() {
  std::array<char, 65> name{};
  gethostname(name.data(), name.size() - 1);
  Host host{name.data(), {}};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host.boot;
  return host;
}

bool is_same(const Host& one, const Host& other) {
  return one.boot.empty() || other.boot.empty() ? one.name == other.name : one.boot == other.boot;
}

Introduced introduce(const cuda::Nccl& nccl, ncclComm_t handle, const Host& own, const TeamOptions& options) {
  const Communicator communicator(nccl, handle);
  Introduction introduction;
  put(introduction.host, own.name);
  put(introduction.boot, own.boot);
  put(introduction.name, unique_team_name());
  introduction.asked = options.device.value_or(communicator.device());
  introduction.device = communicator.device();
  const std::vector<Introduction> all = communicator.gather(introduction, options.timeout);
  if (options.address.empty()) refuse_other_hosts(all);
  refuse_other_devices(all);
  return {{communicator.rank(), communicator.world(), text_of(all.front().name)}, communicator.device()};
}

}  // namespace kiln::team

namespace kiln {

std::shared_ptr<Team> team_from_nccl(ncclComm* communicator, const TeamOptions& options) {
  const team::Introduced found = team::introduce(cuda::Nccl::get(), communicator, team::this_host(), options);
  TeamOptions chosen = options;
  chosen.device = found.device;
  return std::make_shared<Team>(found.membership.rank, found.membership.world, found.membership.name, chosen);
}

}  // namespace kiln

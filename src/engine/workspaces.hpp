// Device memory for workspaces. All plans of an engine use the same two blocks on a stream: one of scratch, and one that is zeros between
// launches. A capture has blocks of its own on each stream that takes part, which its graph keeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/stream_identity.hpp"
#include "engine/launches_in_flight.hpp"
#include "jit/launch_form.hpp"

namespace kiln::engine {

/// Bytes of workspace that a launch needs.
struct WorkspaceNeeds {
  std::int64_t scratch = 0, zeroed = 0;
  [[nodiscard]] bool none() const noexcept { return scratch == 0 && zeroed == 0; }
  [[nodiscard]] bool within(const WorkspaceNeeds& other) const noexcept {
    return scratch <= other.scratch && zeroed <= other.zeroed;
  }
};

/// Blocks go by a stream's identity, never by its handle: the driver gives a handle again while the work of the stream that had it still runs.
/// A look-up takes no lock and costs the same however many streams there are. Nothing is enqueued on the streams.
///
/// A block is taken from the table before it is freed. release() then waits for the launches that may have found it, and cuMemFree for the
/// device. A stream's blocks are taken when its handle comes with another identity, when its thread ends (the per-thread default stream), when
/// a larger block replaces them, when the stream did not launch while many others got blocks, since most streams go without a sign, and when the
/// limit is reached, those not used for the longest time first. Those of a capture are taken when the driver has destroyed all graphs that were
/// made from it.
class Workspaces {
 public:
  /// `limit`: bytes past which blocks of other streams are freed. A block that a launch needs is allocated all the same.
  explicit Workspaces(std::int64_t limit);
  /// The context must be current, and no launch in flight.
  ~Workspaces();
  Workspaces(const Workspaces&) = delete;
  Workspaces& operator=(const Workspaces&) = delete;

  /// Sets `blocks` to those of the stream; returns false where it has none as large as `needs`. No lock. The blocks may be used while the
  /// calling thread is inside launches().
  [[nodiscard]] bool find(const cuda::StreamIdentity& stream, const WorkspaceNeeds& needs,
                          jit::WorkspaceBlocks& blocks) const noexcept;
  /// Whether a launch on the stream would find blocks. For a stream that the driver does not know: false.
  [[nodiscard]] bool serves(CUstream stream, const WorkspaceNeeds& needs) const noexcept;
  [[nodiscard]] LaunchesInFlight& launches() const noexcept { return launches_; }

  /// Allocates what the stream lacks, in the current context. `stream` may capture: then its graph keeps the blocks, and the calling thread's
  /// capture mode must be relaxed. Throws Error(out_of_memory), Error(driver_failed). Precondition: the thread is not inside launches().
  void make(CUstream stream, const WorkspaceNeeds& needs);
  /// Frees all blocks but those of captures whose graphs live. Waits for launches in flight and for the device. Returns the bytes freed.
  std::int64_t trim();
  /// Device memory held now.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct GraphUse;
  struct Entry;
  class Table;
  class Owner;
  using Block = std::shared_ptr<const cuda::Buffer>;

  // With mutex_ held:
  void keep_for_graph(CUstream stream, Entry& entry, const Entry* before);
  void publish(std::unique_ptr<Entry> made);
  void retire(Entry& entry);
  void retire_if_ended(CUstream stream, const cuda::StreamIdentity& identity);
  void retire_captures();
  std::int64_t retire_streams(const cuda::StreamIdentity& but, std::int64_t at_least);
  void retire_idle(const cuda::StreamIdentity& stream);
  Block allocate(std::int64_t bytes, bool zeroed, const cuda::StreamIdentity& stream);
  std::int64_t release();

  const std::int64_t limit_;
  mutable LaunchesInFlight launches_;
  std::atomic<const Table*> table_{nullptr};
  std::atomic<std::uint64_t> makes_{0};  // the clock by which entries are old

  mutable std::mutex mutex_;  // guards the members below, and every change of the table
  std::unique_ptr<Table> current_;
  std::unordered_map<CUstream, cuda::StreamIdentity> by_handle_;
  std::vector<Entry*> captures_;
  std::uint64_t idle_makes_ = 64;  // makes_ without a launch after which a stream counts as gone
  std::unordered_map<std::uint64_t, std::uint64_t> idle_;  // streams taken for gone, and makes_ then
  std::int64_t held_ = 0, retired_bytes_ = 0;  // of blocks that the table has, and of those that were retired
  std::vector<std::unique_ptr<Entry>> retired_;
  std::vector<std::unique_ptr<Table>> retired_tables_;
  std::shared_ptr<Owner> owner_;  // how ending threads find this
};

}  // namespace kiln::engine

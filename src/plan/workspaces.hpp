// Device memory for workspaces. All plans of an engine use the same two blocks on a stream: one of scratch, and one
// that is zeros between launches. A capture has blocks of its own on each stream that takes part, which its graph
// keeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/stream_owner.hpp"
#include "jit/launch_form.hpp"
#include "kiln/options.hpp"
#include "plan/launches_in_flight.hpp"

namespace kiln::plan {

/// Bytes of workspace that a launch needs.
struct WorkspaceNeeds {
  std::int64_t scratch = 0, zeroed = 0;
  [[nodiscard]] bool none() const noexcept { return scratch == 0 && zeroed == 0; }
  [[nodiscard]] bool within(const WorkspaceNeeds& other) const noexcept {
    return scratch <= other.scratch && zeroed <= other.zeroed;
  }
};

/// A block belongs to a stream's identity, never to its handle: the driver gives a handle again while the work of the
/// stream that had it still runs. A look-up takes no lock and costs the same however many streams there are. Nothing is
/// enqueued on the streams.
///
/// A stream's blocks leave the table
/// - when the stream's handle comes with another identity;
/// - when the thread ends whose own default stream it is;
/// - when a larger block replaces them;
/// - when the stream did not launch while many others got blocks, since nothing says that a stream is gone;
/// - past the limit, those first that have not launched for the longest time.
/// Those of a capture leave it after the driver has destroyed all graphs that were made from it.
///
/// Blocks are freed after they have left the table and no launch may use them. cuMemFree waits for the device; a
/// caller's allocator orders what it does with the memory after the stream's work. It is called one at a time.
class Workspaces {
 public:
  /// `limit`: bytes past which blocks of other streams are freed. A block that a launch needs is allocated all the
  /// same. `allocator`: that of the options.
  explicit Workspaces(std::int64_t limit, WorkspaceAllocator allocator = {});
  /// The context must be current, and no launch in flight.
  ~Workspaces();
  Workspaces(const Workspaces&) = delete;
  Workspaces& operator=(const Workspaces&) = delete;

  struct Found {
    jit::WorkspaceBlocks blocks;
    std::atomic<bool>* launching =
        nullptr;  // true while a launch with these blocks is enqueued; null: nothing was found
  };
  /// Returns the stream's blocks if they are as large as `needs`. No lock. They may be used while the calling thread is
  /// inside launches().
  [[nodiscard]] Found find(const cuda::StreamIdentity& stream, const WorkspaceNeeds& needs) const noexcept;
  /// Whether a launch on the stream would find blocks. False for a stream that the driver does not know. The context
  /// must be current.
  [[nodiscard]] bool serves(CUstream stream, const WorkspaceNeeds& needs) const noexcept;
  [[nodiscard]] LaunchesInFlight& launches() const noexcept { return launches_; }

  /// Allocates what the stream lacks, in the current context. `stream` may capture: then its graph keeps the blocks,
  /// and the calling thread's capture mode must be relaxed. Throws Error(out_of_memory), Error(driver_failed).
  /// Precondition: the thread is not inside launches().
  void make(CUstream stream, const WorkspaceNeeds& needs);
  /// Frees all blocks but those of captures whose graphs live. Waits for launches in flight and for the device. Returns
  /// the bytes freed.
  std::int64_t trim();
  /// Device memory held now.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct GraphUse;
  struct Entry;
  class Table;
  class Owner;
  using Block = std::shared_ptr<const cuda::Buffer>;
  struct Retired {
    std::vector<std::unique_ptr<Entry>> entries;
    std::vector<std::unique_ptr<Table>> tables;
    std::int64_t bytes = 0;
  };

  // With mutex_ held:
  void keep_for_graph(CUstream stream, Entry& entry, const Entry* before);
  void publish(std::unique_ptr<Entry> made);
  void retire(Entry& entry);
  void retire_if_ended(CUstream stream, const cuda::StreamIdentity& identity);
  void retire_captures();
  std::int64_t retire_streams(const cuda::StreamIdentity& but, std::int64_t at_least);
  void retire_idle(const cuda::StreamIdentity& stream);
  [[nodiscard]] std::int64_t& held_by(const Entry& entry) noexcept;
  [[nodiscard]] Retired take_retired();
  Block allocate(std::int64_t bytes, bool zeroed, const Entry& entry);
  [[nodiscard]] cuda::Buffer new_buffer(std::int64_t bytes, const Entry& entry) const;
  /// Also without mutex_.
  std::int64_t free_retired(Retired retired);

  const std::int64_t limit_;
  const WorkspaceAllocator allocator_;
  mutable std::mutex lending_;  // held while the caller's allocator works; taken last
  mutable LaunchesInFlight launches_;
  std::atomic<const Table*> table_{nullptr};
  std::atomic<std::uint64_t> makes_{0};  // the clock by which entries are old

  mutable std::mutex mutex_;  // guards the members below, and every change of the table
  std::unique_ptr<Table> current_;
  std::unordered_map<CUstream, cuda::StreamIdentity> by_handle_;
  std::vector<Entry*> captures_;
  std::uint64_t idle_makes_ = 64;  // makes_ without a launch after which a stream counts as gone
  bool idle_returned_ = false;     // one that counted as gone has launched again since the last check
  std::unordered_map<std::uint64_t, std::uint64_t> idle_;  // streams taken for gone, and makes_ then
  std::int64_t held_ = 0, held_by_graphs_ = 0, retired_bytes_ = 0;
  std::vector<std::unique_ptr<Entry>> retired_;
  std::vector<std::unique_ptr<Table>> retired_tables_;
  std::shared_ptr<Owner> owner_;  // how ending threads find this
};

}  // namespace kiln::plan

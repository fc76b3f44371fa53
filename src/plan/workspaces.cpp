#include "plan/workspaces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "cuda/stream_owner.hpp"
#include "kiln/error.hpp"

namespace kiln::plan {
namespace {

/// Retired blocks are freed together, since cuMemFree waits for the device.
constexpr std::int64_t freed_together = std::int64_t{64} << 20;  // bytes
constexpr std::size_t entries_freed_together = 256;
/// What streams may hold however long they do not launch.
constexpr std::int64_t held_anyway = std::int64_t{64} << 20;  // bytes
constexpr std::size_t entries_held_anyway = 256;
constexpr std::uint64_t checked_every = 16, least_idle_makes = 64, most_idle_makes = 16384;  // makes
/// A stream that returns within so many times idle_makes_ takes turns with others.
constexpr std::uint64_t turns_within = 64;

std::size_t hash_of(const cuda::StreamIdentity& stream) noexcept {
  const std::uint64_t mixed = (stream.stream ^ std::rotl(stream.capture, 32)) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::size_t>(mixed ^ (mixed >> 32));
}

std::int64_t bytes_of(const std::shared_ptr<const cuda::Buffer>& block) noexcept { return block ? block->bytes() : 0; }

/// The stream as the caller's allocator gets it back with a block; null where the handle may name another stream by
/// then.
using HandleToFreeBy = std::shared_ptr<std::atomic<CUstream>>;

constexpr std::uint64_t alignment = 256;  // of workspaces, in bytes

/// The allocator's answer. An exception counts as null: the memory of streams that are not used is given back, and it
/// is asked again.
void* ask(const WorkspaceAllocator& allocator, std::int64_t bytes, CUstream stream, bool captured) {
  std::string why = fmt::format("has not the {} bytes of a workspace", bytes);
  try {
    if (void* const address = allocator.allocate(static_cast<std::size_t>(bytes), stream, captured)) return address;
  } catch (const std::exception& error) {
    why += fmt::format(": {}", error.what());
  } catch (...) {
    why += ": it threw what is no std::exception";
  }
  throw Error(ErrorKind::out_of_memory, "Options::workspace_allocator " + why);
}

/// So that the next push_back does not throw.
template <class T>
void make_room(std::vector<T>& all) {
  if (all.size() == all.capacity()) all.reserve(2 * all.size() + 16);
}

}  // namespace

/// Told by the driver when the last graph that was made from a capture is gone, and its launches have ended.
struct Workspaces::GraphUse {
  std::atomic<bool> ended{false};

  /// Gives the graph under capture a part in `use`.
  static void retain(CUstream stream, const std::shared_ptr<GraphUse>& use) {
    const cuda::Driver& driver = cuda::Driver::get();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = nullptr;
    cuda::check(driver.cuStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr),
                "asking for the graph of a capture");
    auto part = std::make_unique<std::shared_ptr<GraphUse>>(use);
    CUuserObject object = nullptr;
    cuda::check(driver.cuUserObjectCreate(&object, part.get(), end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                "keeping a workspace for a graph");
    static_cast<void>(part.release());  // end() deletes it
    cuda::check(driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
                "keeping a workspace for a graph");
  }

 private:
  /// On a thread of the driver, where no CUDA call is allowed.
  static void end(void* part) {
    const std::unique_ptr<std::shared_ptr<GraphUse>> use(static_cast<std::shared_ptr<GraphUse>*>(part));
    (*use)->ended.store(true, std::memory_order_release);
  }
};

/// What a look-up finds. Nothing that it reads changes but `used`.
struct Workspaces::Entry {
  cuda::StreamIdentity stream;
  jit::WorkspaceBlocks blocks;
  WorkspaceNeeds bytes;
  std::atomic<std::uint64_t> used{0};  // makes_ at the last launch
  mutable std::atomic<bool> launching{false};
  Block scratch, zeroed;
  std::vector<Block> earlier;       // of a capture: smaller blocks, which its graph uses too
  std::shared_ptr<GraphUse> graph;  // null outside captures
  CUstream handle = nullptr;
  HandleToFreeBy free_by;

  [[nodiscard]] std::int64_t all_bytes() const noexcept {
    std::int64_t sum = bytes_of(scratch) + bytes_of(zeroed);
    for (const Block& each : earlier) sum += bytes_of(each);
    return sum;
  }
};

/// Open addressing with linear probing, never more than half full. Retired entries leave a mark, as a look-up goes past
/// them.
class Workspaces::Table {
 public:
  explicit Table(std::size_t entries) : slots_(std::bit_ceil(std::max<std::size_t>(16, 4 * entries))) {}

  [[nodiscard]] Entry* find(const cuda::StreamIdentity& stream) const noexcept {
    for (std::size_t i = hash_of(stream);; ++i) {
      Entry* const entry = slot(i).load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (entry != taken() && entry->stream == stream) return entry;
    }
  }
  /// Adds the entry or puts it in place of the stream's. Returns false where a larger table is needed.
  bool put(Entry* entry) noexcept {
    std::size_t i = hash_of(entry->stream);
    while (slot(i).load(std::memory_order_relaxed) != nullptr) {
      Entry* const there = slot(i).load(std::memory_order_relaxed);
      if (there != taken() && there->stream == entry->stream) {
        slot(i).store(entry, std::memory_order_release);
        return true;
      }
      ++i;
    }
    if (2 * (filled_ + 1) > slots_.size()) return false;
    ++filled_;
    slot(i).store(entry, std::memory_order_release);
    return true;
  }
  void take(const Entry* entry) noexcept {
    std::size_t i = hash_of(entry->stream);
    while (slot(i).load(std::memory_order_relaxed) != entry) ++i;
    slot(i).store(taken(), std::memory_order_release);
  }
  [[nodiscard]] std::vector<Entry*> entries() const {
    std::vector<Entry*> all;
    for (const std::atomic<Entry*>& each : slots_)
      if (Entry* const entry = each.load(std::memory_order_relaxed); entry != nullptr && entry != taken())
        all.push_back(entry);
    return all;
  }

 private:
  static Entry* taken() noexcept { return reinterpret_cast<Entry*>(&mark_); }
  [[nodiscard]] const std::atomic<Entry*>& slot(std::size_t i) const noexcept {
    return slots_[i & (slots_.size() - 1)];
  }
  [[nodiscard]] std::atomic<Entry*>& slot(std::size_t i) noexcept { return slots_[i & (slots_.size() - 1)]; }

  static inline std::max_align_t mark_;
  std::vector<std::atomic<Entry*>> slots_;
  std::size_t filled_ = 0;  // marks included
};

/// Whether this thread's end has been told, after which destructors of its other objects may still launch.
constinit thread_local bool is_told_of = false;

/// Outlives the Workspaces for threads that end later.
class Workspaces::Owner {
 public:
  explicit Owner(Workspaces& owned) : owned_(&owned) {}
  void clear() {
    const std::lock_guard lock(mutex_);
    owned_ = nullptr;
  }
  void end_of_thread(const cuda::StreamIdentity& stream) {
    const std::lock_guard lock(mutex_);
    if (owned_ == nullptr) return;
    const std::lock_guard changing(owned_->mutex_);
    if (Entry* const entry = owned_->current_->find(stream)) owned_->retire(*entry);
  }

  /// Calls end_of_thread() when the calling thread ends.
  static void watch_thread(const std::shared_ptr<Owner>& owner, const cuda::StreamIdentity& stream) {
    struct Streams {
      std::vector<std::pair<std::weak_ptr<Owner>, cuda::StreamIdentity>> all;
      ~Streams() {
        is_told_of = true;
        if (cuda::is_forked()) return;
        for (const auto& [of, its] : all)
          if (const auto alive = of.lock()) alive->end_of_thread(its);
      }
    };
    if (is_told_of) return;
    thread_local Streams streams;  // NOLINT(clang-diagnostic-exit-time-destructors): a thread's, and says so
    std::erase_if(streams.all, [&](const auto& each) { return each.first.expired() || each.second == stream; });
    streams.all.emplace_back(owner, stream);
  }

 private:
  std::mutex mutex_;
  Workspaces* owned_;
};

Workspaces::Workspaces(std::int64_t limit, WorkspaceAllocator allocator)
    : limit_(limit),
      allocator_(std::move(allocator)),
      current_(std::make_unique<Table>(0)),
      owner_(std::make_shared<Owner>(*this)) {
  table_.store(current_.get(), std::memory_order_release);
}

Workspaces::~Workspaces() {
  owner_->clear();
  for (const Entry* entry : current_->entries()) delete entry;
}

Workspaces::Found Workspaces::find(const cuda::StreamIdentity& stream, const WorkspaceNeeds& needs) const noexcept {
  Entry* const entry = table_.load(std::memory_order_acquire)->find(stream);
  if (entry == nullptr || !needs.within(entry->bytes)) return {};
  const std::uint64_t now = makes_.load(std::memory_order_relaxed);
  if (entry->used.load(std::memory_order_relaxed) != now) entry->used.store(now, std::memory_order_relaxed);
  return {entry->blocks, &entry->launching};
}

bool Workspaces::serves(CUstream stream, const WorkspaceNeeds& needs) const noexcept {
  if (needs.none()) return true;
  cuda::StreamIdentity identity;
  if (cuda::identify(stream, identity) != CUDA_SUCCESS) return false;
  const LaunchesInFlight::Entered entered(launches_, jit::thread_number());
  return find(identity, needs).launching != nullptr;
}

void Workspaces::make(CUstream stream, const WorkspaceNeeds& needs) {
  cuda::StreamIdentity identity;
  cuda::check(cuda::identify(stream, identity), "identifying a stream");
  std::unique_lock lock(mutex_);
  retire_captures();
  retire_if_ended(stream, identity);
  const Entry* const before = current_->find(identity);
  if (before != nullptr && needs.within(before->bytes)) return;
  if (!identity.is_of_capture()) makes_.fetch_add(1, std::memory_order_relaxed);
  if (before == nullptr && !identity.is_of_capture()) retire_idle(identity);
  auto entry = std::make_unique<Entry>();
  entry->stream = identity;
  entry->handle = stream;
  entry->used = makes_.load(std::memory_order_relaxed);
  const bool is_known_later = !identity.is_of_capture() && !cuda::is_per_thread(stream);
  entry->free_by =
      before != nullptr ? before->free_by : std::make_shared<std::atomic<CUstream>>(is_known_later ? stream : nullptr);
  const Block none;
  const auto block_of = [&](Block Entry::*member, std::int64_t bytes, bool zeroed) {
    const Block& present = before != nullptr ? before->*member : none;
    (*entry).*member = bytes > bytes_of(present) ? allocate(bytes, zeroed, *entry) : present;
  };
  block_of(&Entry::scratch, needs.scratch, false);
  block_of(&Entry::zeroed, needs.zeroed, true);
  entry->bytes = {bytes_of(entry->scratch), bytes_of(entry->zeroed)};
  entry->blocks = {entry->scratch ? entry->scratch->pointer() : 0, entry->zeroed ? entry->zeroed->pointer() : 0};
  if (identity.is_of_capture()) keep_for_graph(stream, *entry, before);
  if (cuda::is_per_thread(stream) && !identity.is_of_capture()) Owner::watch_thread(owner_, identity);
  publish(std::move(entry));
  if (identity.is_of_capture()) return;  // cuMemFree would wait for the device
  if (retired_bytes_ < freed_together && retired_.size() < entries_freed_together) return;
  Retired retired = take_retired();
  lock.unlock();
  free_retired(std::move(retired));
}

/// The graph under capture keeps the entry's blocks, and those that launches captured earlier use.
void Workspaces::keep_for_graph(CUstream stream, Entry& entry, const Entry* before) {
  if (before == nullptr) {
    entry.graph = std::make_shared<GraphUse>();
    return GraphUse::retain(stream, entry.graph);
  }
  entry.graph = before->graph;
  entry.earlier = before->earlier;
  if (before->scratch != entry.scratch) entry.earlier.push_back(before->scratch);
  if (before->zeroed != entry.zeroed) entry.earlier.push_back(before->zeroed);
}

std::int64_t& Workspaces::held_by(const Entry& entry) noexcept {
  return entry.stream.is_of_capture() ? held_by_graphs_ : held_;
}

/// Puts the entry into the table, in place of the stream's earlier one.
void Workspaces::publish(std::unique_ptr<Entry> made) {
  Entry* const entry = made.get();
  Entry* const before = current_->find(entry->stream);
  make_room(captures_);
  make_room(retired_);
  if (!entry->stream.is_of_capture() && !cuda::is_default(entry->handle)) by_handle_[entry->handle] = entry->stream;
  if (!current_->put(entry)) {
    const std::vector<Entry*> all = current_->entries();
    auto larger = std::make_unique<Table>(all.size() + 1);
    for (Entry* each : all) larger->put(each);
    larger->put(entry);
    retired_tables_.push_back(std::move(current_));
    current_ = std::move(larger);
    table_.store(current_.get(), std::memory_order_release);
  }
  static_cast<void>(made.release());  // the table's, until it is retired
  held_by(*entry) += entry->all_bytes();
  if (entry->graph != nullptr) captures_.push_back(entry);
  if (before == nullptr) return;
  held_by(*before) -= before->all_bytes();
  for (const Block& each : {before->scratch, before->zeroed})
    if (entry->graph == nullptr && each != entry->scratch && each != entry->zeroed) retired_bytes_ += bytes_of(each);
  std::erase(captures_, before);
  retired_.emplace_back(before);
}

/// Takes the entry from the table. Its blocks are freed by the next release().
void Workspaces::retire(Entry& entry) {
  make_room(retired_);
  current_->take(&entry);
  const std::int64_t bytes = entry.all_bytes();
  held_by(entry) -= bytes;
  retired_bytes_ += bytes;
  if (const auto known = by_handle_.find(entry.handle); known != by_handle_.end() && known->second == entry.stream)
    by_handle_.erase(known);
  std::erase(captures_, &entry);
  retired_.emplace_back(&entry);
}

/// A handle that comes with another identity was given again, so the stream that had it is gone.
void Workspaces::retire_if_ended(CUstream stream, const cuda::StreamIdentity& identity) {
  if (identity.is_of_capture()) return;
  const auto known = by_handle_.find(stream);
  if (known == by_handle_.end() || known->second == identity) return;
  if (Entry* const entry = current_->find(known->second)) {
    entry->free_by->store(nullptr, std::memory_order_relaxed);
    retire(*entry);
  }
}

/// Retires the blocks of streams that did not launch while idle_makes_ others got theirs. Where such streams soon
/// launch again, the others are given twice as long, so that streams which take turns keep their blocks.
void Workspaces::retire_idle(const cuda::StreamIdentity& stream) {
  idle_returned_ = idle_.erase(stream.stream) > 0 || idle_returned_;
  const std::uint64_t now = makes_.load(std::memory_order_relaxed);
  if (now % checked_every != 0) return;
  idle_makes_ = std::exchange(idle_returned_, false) ? std::min(2 * idle_makes_, most_idle_makes)
                                                     : std::max(idle_makes_ / 2, least_idle_makes);
  const std::vector<Entry*> all = current_->entries();
  if (held_ <= held_anyway && all.size() <= entries_held_anyway) return;
  std::erase_if(idle_, [&](const auto& each) { return each.second + turns_within * idle_makes_ < now; });
  for (Entry* each : all) {
    if (each->stream.is_of_capture() || each->used.load(std::memory_order_relaxed) + idle_makes_ >= now) continue;
    idle_[each->stream.stream] = now;
    retire(*each);
  }
}

void Workspaces::retire_captures() {
  const std::vector<Entry*> all = captures_;
  for (Entry* each : all)
    if (each->graph->ended.load(std::memory_order_acquire)) retire(*each);
}

/// Retires entries of other streams, those not used for the longest time first, until they come to `at_least` bytes.
/// Returns their bytes.
std::int64_t Workspaces::retire_streams(const cuda::StreamIdentity& but, std::int64_t at_least) {
  std::vector<Entry*> all = current_->entries();
  std::erase_if(all, [&](const Entry* each) { return each->stream.is_of_capture() || each->stream == but; });
  std::ranges::stable_sort(all, {}, [](const Entry* each) { return each->used.load(std::memory_order_relaxed); });
  std::int64_t bytes = 0;
  for (Entry* each : all) {
    if (bytes >= at_least) break;
    bytes += each->all_bytes();
    retire(*each);
  }
  return bytes;
}

cuda::Buffer Workspaces::new_buffer(std::int64_t bytes, const Entry& entry) const {
  if (!allocator_.allocate) return cuda::Buffer(bytes);
  const std::lock_guard lending(lending_);
  void* const address = ask(allocator_, bytes, entry.handle, entry.stream.is_of_capture());
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    allocator_.free(address, static_cast<std::size_t>(bytes), entry.free_by->load(std::memory_order_relaxed));
    throw Error(ErrorKind::bad_input,
                fmt::format("Options::workspace_allocator gave {} for a workspace, expected a multiple of {} bytes",
                            fmt::ptr(address), alignment));
  }
  return {reinterpret_cast<CUdeviceptr>(address), bytes, [this, address, bytes, free_by = entry.free_by] {
            const std::lock_guard returning(lending_);
            allocator_.free(address, static_cast<std::size_t>(bytes), free_by->load(std::memory_order_relaxed));
          }};
}

/// Zeroes on a stream of its own and waits, because a graph may run on another stream than the one captured.
Workspaces::Block Workspaces::allocate(std::int64_t bytes, bool zeroed, const Entry& entry) {
  const cuda::StreamIdentity identity = entry.stream;
  const bool may_free = !identity.is_of_capture();  // cuMemFree waits for the device
  if (const std::int64_t over = held_ + retired_bytes_ + bytes - limit_; over > 0 && may_free) {
    retire_streams(identity, over - retired_bytes_);
    free_retired(take_retired());
  }
  const auto allocate_now = [&] {
    auto block = std::make_shared<cuda::Buffer>(new_buffer(bytes, entry));
    if (zeroed && allocator_.allocate && may_free) {
      block->fill_bytes(0, entry.handle);  // in order with the work of the stream that used this memory before
    } else if (zeroed) {
      const cuda::Stream filling;
      block->fill_bytes(0, filling.handle());
      filling.synchronize();
    }
    return block;
  };
  try {
    return allocate_now();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory || !may_free) throw;
    retire_streams(identity, held_);
    if (free_retired(take_retired()) == 0) throw;
  }
  return allocate_now();
}

Workspaces::Retired Workspaces::take_retired() {
  return {std::exchange(retired_, {}), std::exchange(retired_tables_, {}), std::exchange(retired_bytes_, 0)};
}

/// Frees what was retired, once no launch may find it. Returns the bytes freed.
std::int64_t Workspaces::free_retired(Retired retired) {
  if (retired.entries.empty() && retired.tables.empty()) return 0;
  if (launches_.wait()) return retired.bytes;                            // and the entries end with this call
  for (auto& each : retired.entries) static_cast<void>(each.release());  // in use, for all that is known
  for (auto& each : retired.tables) static_cast<void>(each.release());
  return 0;
}

std::int64_t Workspaces::trim() {
  std::unique_lock lock(mutex_);
  retire_captures();
  retire_streams({}, held_);
  Retired retired = take_retired();
  lock.unlock();
  return free_retired(std::move(retired));
}

std::int64_t Workspaces::bytes() const {
  const std::lock_guard lock(mutex_);
  return held_ + held_by_graphs_ + retired_bytes_;
}

}  // namespace kiln::plan

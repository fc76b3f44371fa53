// The files that an engine uses, in look-up order: the overlay, then the bases in the order given.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "kiln/options.hpp"
#include "store/file.hpp"

namespace kiln::store {

/// Of a record that is stored later: what it replaces then. `worse` is judged as merging does (merge_order.hpp).
enum class Replaces : std::uint8_t { worse, any };

enum class LayerKind : std::uint8_t { overlay, base };

struct Layer {
  LayerKind kind = LayerKind::base;
  std::filesystem::path path;
  std::unique_ptr<File> file;     // null when refused
  std::string refused;            // why the file was not opened, or empty
  bool trusted_for_code = false;  // its cubins may be loaded
  std::string trust;              // why they may or may not be, for `explain` and `doctor`
  std::string set_aside = {};     // what was damaged at this place, and where it is now; empty if nothing was
};

std::string name_of(const Layer& layer);  // "overlay /home/u/.cache/kiln/overlay.kiln"

struct LayerSettings {
  std::optional<std::filesystem::path> overlay = std::filesystem::path();  // nothing: no path could be formed
  std::vector<std::filesystem::path> bases = {};
  TrustPolicy trust = TrustPolicy::owner;
  std::vector<std::filesystem::path> key_folders = {};  // see key_ring.hpp
  std::int64_t overlay_limit_bytes = 0;                 // 0: no limit
  bool require_bases = false;                           // as Options::require_bases
};

template <class T>
struct Found {
  T value;
  std::size_t layer = 0;  // index into layers()
};

class Layers {
 public:
  /// Renames a damaged overlay and creates a new one. Goes on without an overlay that another process keeps locked, or
  /// for which no descriptor is left, and asks for it again later. Replaces an overlay that cannot be opened, or that
  /// others may write, by one in memory; if it is this user's own and readable, it serves as a base. Skips a base that
  /// cannot be opened, and the machine code of one that may not supply it. An absent overlay path means memory.
  /// warnings() tells each of these; an empty path also means memory, without a warning. Throws Error(bad_file) as
  /// LayerSettings::require_bases says.
  explicit Layers(const LayerSettings& settings);
  ~Layers();
  Layers(Layers&&) noexcept = default;
  Layers& operator=(Layers&&) = delete;
  /// Returns the first layer's record of the key for which `accepts`, if given, is true. Here and below, adds the
  /// look-up's failures to `met`, if given.
  [[nodiscard]] std::optional<Found<Record>> find_record(std::string_view key,
                                                         const std::function<bool(const Found<Record>&)>& accepts = {},
                                                         Counters* met = nullptr);
  /// Searches the trusted layers only.
  [[nodiscard]] std::optional<Found<CubinRow>> find_cubin(const manifest::Digest& key, Counters* met = nullptr);
  /// Whether a trusted layer has a row of the key, which find_cubin() may still refuse as damaged.
  [[nodiscard]] bool has_cubin(const manifest::Digest& key);
  /// Returns the distinct compilers of the cubins in the trusted layers.
  [[nodiscard]] std::vector<std::string> compilers();
  /// Returns all records of an op, layer by layer; for `nearest`. Each layer keeps them until its file changes.
  [[nodiscard]] std::vector<Found<Record>> records(std::string_view op);
  /// Returns the candidates of a record that records() returned, from its layer. Empty when it has none or was removed.
  [[nodiscard]] std::vector<TriedCandidate> candidates_of(const Found<Record>& found);
  [[nodiscard]] File& overlay();
  /// Returns the overlay or, where it was refused and its file serves as a base, that base.
  [[nodiscard]] const Layer& readable_overlay() const noexcept { return layers_[readable_overlay_]; }
  [[nodiscard]] std::span<const Layer> layers() const noexcept { return layers_; }

  /// Calls File::put_all on the overlay. An overlay that turns out to be damaged is renamed, and the rows go to a new
  /// one. When the overlay cannot be written, as on a full disk, keeps the rows in memory; later calls and the
  /// destructor try to move them into the overlay. warnings() tells each of these once. Throws only Error(bad_input).
  void put_all(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing = Existing::keep);
  /// For rows that can be fetched again: look-ups find them at once, and they are written in one transaction by the
  /// next write_queued(), put_all() or the destructor. A crash before loses them. A record that the overlay has by
  /// then stays unless it is worse, or `replaces` is `any`; one of a later put_all() stays always. Returns false where
  /// the overlay is in memory: they are stored then. Throws only Error(bad_input).
  bool put_later(std::span<const Record> records, std::span<const CubinRow> cubins,
                 Replaces replaces = Replaces::worse);
  /// Writes the rows of put_later(). Look-ups find them meanwhile, and other calls of put_later() do not wait. When the
  /// overlay cannot be written, does as put_all() does.
  void write_queued();
  /// As write_queued(), but waits `patience` at most for who uses the overlay. Returns false when that was too short:
  /// the rows remain, for another call. After 5 s of such calls the overlay counts as one that cannot be written.
  bool write_queued(std::chrono::milliseconds patience);
  /// Whether there are rows of put_later() that no write has met yet.
  [[nodiscard]] bool has_queued() const;
  /// Calls File::acquire_lease on the overlay. Returns true when the overlay cannot be written: each process then
  /// tunes.
  bool acquire_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds);
  /// A release that fails is retried by later calls, and when the layers are closed.
  void release_lease(std::string_view key, std::string_view holder);
  /// Restarts the term of a lease that `holder` has. Ignores failures: the caller renews again.
  void renew_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) noexcept;
  [[nodiscard]] std::string lease_holder(std::string_view key) { return overlay().lease_holder(key); }

  /// Returns why the overlay's file does not hold all stored rows, or an empty string. Opens the file again, as the
  /// next process will. Both write the rows of put_later() first.
  [[nodiscard]] std::string not_kept();
  /// Reads back whether the overlay's file holds the last record stored under the key. False for an overlay in memory.
  [[nodiscard]] bool keeps(std::string_view key);

  /// Has `told` called when a write has added to warnings(). On the thread that writes, which holds no lock of this
  /// object. Precondition: no other thread uses this object during the call.
  void tell_news_to(std::function<void()> told) { told_ = std::move(told); }
  /// Returns what was skipped or renamed when opening, and what could not be read or written since, each once.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  /// Rows that the overlay could not store, or that are not written yet. Look-ups search them before the overlay.
  struct Memory {
    struct Kept {
      Replaces replaces = Replaces::any;
      std::uint64_t number = 0;  // of the call that put it
    };
    struct Taken {
      std::vector<Record> records, additions;
      std::vector<CubinRow> cubins;
      std::uint64_t last = 0;  // the number of the last call that put any
    };
    // Precondition of these: the mutex is held.
    File& ready();
    void put(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing, Replaces replaces);
    [[nodiscard]] Taken take();
    /// Removes the records for which `is_done` is true, and the cubins.
    void remove(const std::function<bool(const Record&)>& is_done, std::span<const CubinRow> cubins);
    std::mutex writing;  // held while rows are moved, so that none overwrites a later one; taken before `mutex`
    std::mutex mutex;    // never held while the overlay is read or written
    std::unique_ptr<File> file;
    std::atomic<File*> opened = nullptr;
    std::map<std::string, Kept, std::less<>> kept;   // by the keys of the file's records
    std::uint64_t puts = 0;                          // calls so far that put rows
    std::uint64_t queued_at = 0, lost_at = 0;        // the last of put_later(), and of a put_all() that failed
    std::string why;                                 // the first failure, for warnings()
    std::string lost_rows;                           // the last failure to store rows, or empty
    bool has_queued = false;                         // rows of put_later()
    std::chrono::steady_clock::time_point in_use{};  // since when write_queued() finds the overlay so
    std::vector<std::string> set_aside;              // overlays that turned out to be damaged, for warnings()
  };
  /// Leases whose release failed. Other processes wait for them until their terms end, because this process lives.
  struct Unreleased {
    struct Lease {
      std::string key, holder;
    };
    std::mutex mutex;
    std::vector<Lease> leases;
  };
  void release_what_is_left() noexcept;
  template <class Work>
  auto write(Work&& work);
  void begin_anew_if_damaged(const Error& error);
  void keep_in_memory(const Error& error, const std::function<void(Memory&)>& work);
  void move_from_memory(File& to, std::chrono::milliseconds patience);
  bool write_queued(std::chrono::milliseconds patience, bool may_remain);
  [[nodiscard]] File* memory() const noexcept { return memory_->opened.load(); }

  std::vector<Layer> layers_;
  std::size_t readable_overlay_ = 0;  // an index into it
  std::vector<std::string> warnings_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Unreleased> unreleased_;
  std::function<void()> told_;
};

/// Returns $KILN_CACHE, which may be empty, else $XDG_CACHE_HOME/kiln/overlay.kiln, else
/// $HOME/.cache/kiln/overlay.kiln; nothing when none of the variables is set.
std::optional<std::filesystem::path> default_overlay();

}  // namespace kiln::store

// Look-up order: the overlay, then the bases in the order given.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
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

enum class LayerKind : std::uint8_t { overlay, base };

/// One layer as it was found: opened, or why it was not.
struct Layer {
  LayerKind kind = LayerKind::base;
  std::filesystem::path path;
  std::unique_ptr<File> file;     // null when refused
  std::string refused;            // the reason, or empty
  bool trusted_for_code = false;  // its cubins may be loaded
  std::string trust;              // why, or why not, for `explain` and `doctor`
};

struct LayerSettings {
  std::optional<std::filesystem::path> overlay = std::filesystem::path();  // nothing: there is no place for one
  std::vector<std::filesystem::path> bases = {};
  TrustPolicy trust = TrustPolicy::owner;
  std::vector<std::filesystem::path> key_folders = {};  // see key_ring.hpp
  std::int64_t overlay_limit_bytes = 0;                 // 0: no limit
};

template <class T>
struct Found {
  T value;
  std::size_t layer = 0;  // index into layers()
};

class Layers {
 public:
  /// A damaged overlay is set aside under another name and begun again. One that cannot be opened, or that others could
  /// have written, is replaced by one in memory. warnings() says so once. One that is this user's own and can be read is
  /// a base then. A base that cannot be opened is left out and named. An empty overlay path: in memory, without a warning;
  /// no path: in memory, with one.
  explicit Layers(const LayerSettings& settings);
  ~Layers();
  Layers(Layers&&) noexcept = default;
  Layers& operator=(Layers&&) = delete;
  /// The first layer's record of the key that `accepts` takes; of any, when it is not given. `met`, here and below, takes
  /// what the look-up met besides.
  [[nodiscard]] std::optional<Found<Record>> find_record(std::string_view key,
                                                         const std::function<bool(const Found<Record>&)>& accepts = {},
                                                         Counters* met = nullptr);
  /// Of trusted layers only.
  [[nodiscard]] std::optional<Found<CubinRow>> find_cubin(const manifest::Digest& key, Counters* met = nullptr);
  /// The distinct compilers over the trusted layers.
  [[nodiscard]] std::vector<std::string> compilers();
  /// All records of an op over all layers, an earlier layer's first; for `nearest`.
  [[nodiscard]] std::vector<Found<Record>> records(std::string_view op);
  /// The candidates of a record that records() gave, of the same layer; none when it has none or is there no more.
  [[nodiscard]] std::vector<Candidate> candidates_of(const Found<Record>& found);
  [[nodiscard]] File& overlay();
  [[nodiscard]] std::span<const Layer> layers() const noexcept { return layers_; }

  /// File::put_all on the overlay. When it cannot be written, by a full disk say, the rows serve this process from its
  /// memory instead, and warnings() says so once. Throws only Error(bad_input).
  void put_all(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing = Existing::keep);
  /// File::acquire_lease on the overlay. When it cannot be written no process can be told, and each tunes for itself.
  bool acquire_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds);
  /// What cannot be released now is tried again later, at the latest when the layers are closed.
  void release_lease(std::string_view key, std::string_view holder);
  /// Begins the term of a lease that this holder has anew. What fails is tried again by the next call.
  void renew_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) noexcept;
  /// File::lease_holder of the overlay.
  [[nodiscard]] std::string lease_holder(std::string_view key) { return overlay().lease_holder(key); }

  /// Why the overlay's file does not hold all that was put; empty when it does. Asked at the end of work that promised to keep something: the
  /// file is opened once more, as the next process will open it.
  [[nodiscard]] std::string not_kept() const;
  /// Whether the overlay's file holds the record of the key that was put last. It is read back; false for an overlay in memory.
  [[nodiscard]] bool keeps(std::string_view key);

  /// What was left out, set aside, or could not be read or written since: each said once, in the order it was met.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  /// What the overlay could not take; asked before it.
  struct Memory {
    std::mutex mutex;
    std::unique_ptr<File> file;
    std::atomic<File*> opened = nullptr;
    std::string why;        // the first failure, with what follows from it
    std::string lost_rows;  // the last failure of a put; empty while none failed
  };
  /// Leases that a failing disk kept from being released. They would hold others up for their term: this process lives.
  struct Unreleased {
    struct Lease {
      std::string key, holder;
    };
    std::mutex mutex;
    std::vector<Lease> leases;
  };
  void release_what_is_left() noexcept;
  File& degrade(const Error& error);
  [[nodiscard]] File* memory() const noexcept { return memory_->opened.load(); }

  std::vector<Layer> layers_;
  std::vector<std::string> warnings_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Unreleased> unreleased_;
};

/// $KILN_CACHE, else $XDG_CACHE_HOME/kiln/overlay.kiln, else $HOME/.cache/kiln/overlay.kiln; nothing when none can be
/// formed.
std::optional<std::filesystem::path> default_overlay();

}  // namespace kiln::store

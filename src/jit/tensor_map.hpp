// Descriptors of the tensor copy engine, made by the driver and kept for as long as what they depend on comes again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/driver_types.hpp"
#include "jit/loaded_pass.hpp"
#include "spec/bucketing.hpp"

namespace kiln::jit {

/// Descriptors by key, as many as fit. Readers and writers are any threads: a reader takes no lock, waits for nobody, writes nothing, and
/// copies a descriptor as one writer left it or not at all.
///
/// Each entry is a seqlock over atomic words (Boehm, "Can seqlocks get along with programming language memory models?", 2012): its version
/// is odd while it is written. Words are stored with release and loaded with acquire, so that who has read one of a newer version also
/// sees that version; on x86 that costs nothing.
class TensorMapCache {
 public:
  static constexpr std::size_t most_words = 7;
  struct Key {
    std::array<std::uint64_t, most_words> words;
    std::uint64_t hash;
  };
  /// Of keys with `words` words, 1 to most_words.
  explicit TensorMapCache(std::size_t words) : form_{words - 1}, entries_(sets * ways) {}

  void finish(Key& key) const noexcept { key.hash = form_.hash(key.words.data()); }
  [[nodiscard]] bool find(const Key& key, CUtensorMap& map) const noexcept {
    const Entry* const set = &entries_[key.hash % sets * ways];
    return read(set[0], key, map) || read(set[1], key, map);
  }
  /// In place of the descriptor of its set that was replaced less often. Does nothing while another thread writes there.
  void keep(const Key& key, const CUtensorMap& map) noexcept;

 private:
  static constexpr std::size_t sets = 16, ways = 2;
  struct alignas(64) Entry {                // three cache lines, of which a look that fails reads the first
    std::atomic<std::uint64_t> version{0};  // 0: empty; odd: being written
    std::array<std::atomic<std::uint64_t>, most_words> key{};
    std::array<std::atomic<std::uint64_t>, sizeof(CUtensorMap) / sizeof(std::uint64_t)> map{};
  };
  /// What it leaves in `map` when it fails is no descriptor.
  [[nodiscard]] bool read(const Entry& entry, const Key& key, CUtensorMap& map) const noexcept;

  spec::BucketForm form_;
  std::vector<Entry> entries_;
};

/// A TMA argument: what its descriptor depends on, and those that were made.
class TensorMaps {
 public:
  /// `argument` outlives this; `slots` of the call frame stand in its shape, strides and box.
  TensorMaps(const LoadedArgument& argument, const std::vector<int>& slots);

  /// Copies the descriptor for this address and frame; false when it must be made first.
  [[nodiscard]] bool find(const void* address, std::span<const std::int64_t> frame, CUtensorMap& map) const noexcept {
    if (cache_ == nullptr) return false;
    return cache_->find(key_of(address, frame), map);
  }
  /// Has the driver make it, and keeps it. Throws Error(bad_input) naming `kernel` for sizes that no descriptor can have, Error(driver_failed)
  /// for an address or stride that the driver refuses.
  void make(const void* address, std::span<const std::int64_t> frame, const std::string& kernel,
            CUtensorMap& map) const;

 private:
  [[nodiscard]] TensorMapCache::Key key_of(const void* address, std::span<const std::int64_t> frame) const noexcept {
    TensorMapCache::Key key;
    key.words[0] = reinterpret_cast<std::uint64_t>(address);
    for (std::size_t i = 0; i < slots_.size(); ++i) key.words[1 + i] = static_cast<std::uint64_t>(frame[slots_[i]]);
    cache_->finish(key);
    return key;
  }
  const LoadedArgument* argument_;
  std::vector<std::uint32_t> slots_;
  std::unique_ptr<TensorMapCache> cache_;  // null: it depends on more than a key holds, and is made at each launch
};

/// The number, or Error(bad_input) that names the kernel, what it is, and the limits.
std::int64_t size_or_throw(const spec::Expression& expression, std::span<const std::int64_t> frame,
                           std::int64_t minimum, std::int64_t maximum, const std::string& kernel, const char* what);

}  // namespace kiln::jit

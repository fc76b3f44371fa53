// Descriptors of the tensor copy engine, made by the driver and kept for as long as what they depend on comes again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cuda/driver_types.hpp"
#include "jit/loaded_pass.hpp"
#include "jit/thread_number.hpp"

namespace kiln::jit {

/// A TMA argument as a launch reads it: where its descriptor goes, and what it depends on besides the tensor's address.
struct TensorMapForm {
  /// How many slots are looked at. Most descriptors depend on three at most, a matrix's rows, columns and stride.
  enum class Key : std::uint8_t { none, narrow, wide };  // none: on more than a key holds
  static constexpr std::size_t narrow = 3, wide = 6;

  std::uint8_t parameter = 0;  // of the pass
  std::uint8_t tensor = 0;
  std::uint8_t index = 0;  // among the pass's descriptors
  Key key = Key::none;
  std::array<std::uint8_t, wide> slots{};  // of the call frame
};

/// The descriptors of a pass by what they depend on, as many as fit, those of each thread apart. So what a thread finds lies still until
/// it makes another: the driver reads it in place, no thread waits for one, and nothing is written that another thread reads. By thread_number,
/// whose lock is what the next thread of a number sees the last one's descriptors by. Threads that share a number keep none.
class TensorMapCache {
 public:
  struct Entry;

  /// Of a pass with so many descriptors.
  explicit TensorMapCache(std::size_t descriptors) : descriptors_(descriptors) {}
  ~TensorMapCache();
  TensorMapCache(const TensorMapCache&) = delete;
  TensorMapCache& operator=(const TensorMapCache&) = delete;

  /// The calling thread's; null while it has none.
  [[nodiscard]] const Entry* own() const noexcept { return own_[thread_number()].get(); }
  /// The descriptor for this address and frame among a thread's `own`, or null: it must be made first.
  [[nodiscard]] static const CUtensorMap* find(const Entry* own, const TensorMapForm& form, const void* address,
                                               std::span<const std::int64_t> frame) noexcept;
  /// Keeps one that was not found, in place of the one of its set that was kept earlier. Where it now lies, or null: it is not kept.
  const CUtensorMap* keep(const TensorMapForm& form, const void* address, std::span<const std::int64_t> frame,
                          const CUtensorMap& map);

 private:
  std::size_t descriptors_;
  std::array<std::unique_ptr<Entry[]>, thread_numbers> own_;  // each written by its thread alone
};

/// A line that a look reads, then what it gives.
struct alignas(64) TensorMapCache::Entry {
  static constexpr std::uint64_t no_address = ~std::uint64_t{0};
  std::array<std::uint64_t, 1 + TensorMapForm::wide> key{no_address};
  std::uint64_t kept_as = 0;  // what is kept later has a higher one
  CUtensorMap map;

  static constexpr int set_bits = 5;
  static constexpr std::size_t ways = 2, sets = std::size_t{1} << set_bits;
  /// The first of a key's set.
  template <std::size_t words>
  static std::size_t set_of(const TensorMapForm& form, const std::array<std::uint64_t, words>& key) noexcept {
    constexpr std::uint64_t base = 0x9E3779B97F4A7C15;  // odd, and 2^64 over the golden ratio
    std::uint64_t sum = 0;
    for (const std::uint64_t word : key) sum = (sum + word) * base;
    return (form.index * sets + (sum >> (64 - set_bits))) * ways;
  }
  /// Slots past those that it depends on are others once more, which does no harm.
  template <std::size_t slots>
  static std::array<std::uint64_t, 1 + slots> key_of(const TensorMapForm& form, const void* address,
                                                     std::span<const std::int64_t> frame) noexcept {
    std::array<std::uint64_t, 1 + slots> result;
    result[0] = reinterpret_cast<std::uint64_t>(address);
    for (std::size_t i = 0; i < slots; ++i) result[1 + i] = static_cast<std::uint64_t>(frame[form.slots[i]]);
    return result;
  }
  template <std::size_t slots>
  static const CUtensorMap* find(const Entry* own, const TensorMapForm& form, const void* address,
                                 std::span<const std::int64_t> frame) noexcept {
    const auto wanted = key_of<slots>(form, address, frame);
    const Entry* const set = own + set_of(form, wanted);
    for (std::size_t way = 0; way < ways; ++way) {
      std::uint64_t differing = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) differing |= set[way].key[i] ^ wanted[i];
      if (differing == 0) return &set[way].map;
    }
    return nullptr;
  }
};

inline const CUtensorMap* TensorMapCache::find(const Entry* own, const TensorMapForm& form, const void* address,
                                               std::span<const std::int64_t> frame) noexcept {
  if (own == nullptr) [[unlikely]]
    return nullptr;
  if (form.key == TensorMapForm::Key::narrow) [[likely]]
    return Entry::find<TensorMapForm::narrow>(own, form, address, frame);
  return form.key == TensorMapForm::Key::wide ? Entry::find<TensorMapForm::wide>(own, form, address, frame) : nullptr;
}

/// Has the driver make one in `map`. Throws Error(bad_input) naming `kernel` for sizes that no descriptor can have, Error(driver_failed) for an
/// address or stride that the driver refuses.
void make_tensor_map(const LoadedArgument& argument, const void* address, std::span<const std::int64_t> frame,
                     const std::string& kernel, CUtensorMap& map);

/// The number, or Error(bad_input) that names the kernel, what it is, and the limits.
std::int64_t size_or_throw(const manifest::Expression& expression, std::span<const std::int64_t> frame,
                           std::int64_t minimum, std::int64_t maximum, const std::string& kernel, const char* what);

}  // namespace kiln::jit

// TMA descriptors, made by the driver and kept for launches with equal addresses and sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cuda/driver_types.hpp"
#include "jit/thread_number.hpp"
#include "manifest/expression.hpp"

namespace kiln::jit {

struct LoadedArgument;

/// A TMA argument as a launch reads it: the parameter, and the slots that its descriptor depends on besides the
/// address.
struct TensorMapForm {
  /// How many slots a key compares. Most descriptors depend on at most three: a matrix's rows, columns and stride.
  /// None: the descriptor depends on more than `widest`, and is not kept.
  enum class Key : std::uint8_t { none = 0, narrow = 3, wide = 6, widest = 12 };
  static constexpr std::size_t most_slots = static_cast<std::size_t>(Key::widest);

  std::uint8_t parameter = 0;  // index among the kernel's parameters
  std::uint8_t tensor = 0;
  std::uint8_t index = 0;  // among the pass's descriptors
  Key key = Key::none;
  std::array<std::uint8_t, most_slots> slots{};  // of the call frame
};

/// A set-associative cache of a pass's descriptors, with entries of its own for each thread_number(). Only the owning
/// thread writes its entries, so the driver reads a descriptor in place and no thread waits for another. The lock of
/// thread_number() publishes entries to the next thread with that number. Threads that share a number keep none.
class TensorMapCache {
 public:
  struct Entry;

  /// `descriptors`: how many the pass has.
  explicit TensorMapCache(std::size_t descriptors) : descriptors_(descriptors) {}
  ~TensorMapCache();
  TensorMapCache(const TensorMapCache&) = delete;
  TensorMapCache& operator=(const TensorMapCache&) = delete;

  /// Returns the calling thread's entries, or null while it has none.
  [[nodiscard]] const Entry* own() const noexcept { return own_[thread_number()].get(); }
  /// Returns the descriptor for this address and frame among a thread's entries, else null.
  [[nodiscard]] static const CUtensorMap* find(const Entry* own, const TensorMapForm& form, const void* address,
                                               std::span<const std::int64_t> frame) noexcept;
  /// Replaces the oldest entry of the set. Returns the address of the kept descriptor, or null when it is not kept.
  const CUtensorMap* keep(const TensorMapForm& form, const void* address, std::span<const std::int64_t> frame,
                          const CUtensorMap& map);

 private:
  std::size_t descriptors_;
  std::array<std::unique_ptr<Entry[]>, thread_numbers> own_;  // each written by its thread alone
};

/// The key, whose first cache line is enough for narrow and wide keys, then the descriptor.
struct alignas(64) TensorMapCache::Entry {
  static constexpr std::uint64_t no_address = ~std::uint64_t{0};
  std::array<std::uint64_t, 1 + TensorMapForm::most_slots> key{no_address};
  std::uint64_t kept_as = 0;  // rises with each entry that the set keeps
  CUtensorMap map;

  static constexpr int set_bits = 5;
  static constexpr std::size_t ways = 2, sets = std::size_t{1} << set_bits;
  /// Returns the index of the first entry of a key's set.
  template <std::size_t words>
  static std::size_t set_of(const TensorMapForm& form, std::span<const std::uint64_t, words> key) noexcept {
    constexpr std::uint64_t base = 0x9E3779B97F4A7C15;  // odd, and 2^64 over the golden ratio
    std::uint64_t sum = 0;
    for (const std::uint64_t word : key) sum = (sum + word) * base;
    return (form.index * sets + (sum >> (64 - set_bits))) * ways;
  }
  /// Unused slots repeat others, which does not change which keys are equal.
  template <std::size_t slots>
  static std::array<std::uint64_t, 1 + slots> key_of(const TensorMapForm& form, const void* address,
                                                     std::span<const std::int64_t> frame) noexcept {
    std::array<std::uint64_t, 1 + slots> result;
    result[0] = reinterpret_cast<std::uint64_t>(address);
    for (std::size_t i = 0; i < slots; ++i) result[1 + i] = static_cast<std::uint64_t>(frame[form.slots[i]]);
    return result;
  }
  template <TensorMapForm::Key size>
  static const CUtensorMap* find(const Entry* own, const TensorMapForm& form, const void* address,
                                 std::span<const std::int64_t> frame) noexcept {
    const auto wanted = key_of<static_cast<std::size_t>(size)>(form, address, frame);
    const Entry* const set = own + set_of(form, std::span(wanted));
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
  using Key = TensorMapForm::Key;
  if (form.key == Key::narrow) [[likely]]
    return Entry::find<Key::narrow>(own, form, address, frame);
  if (form.key == Key::wide) return Entry::find<Key::wide>(own, form, address, frame);
  return form.key == Key::widest ? Entry::find<Key::widest>(own, form, address, frame) : nullptr;
}

/// Makes a descriptor in `map` by the driver. Throws Error(bad_input) that names `kernel` and the tensor for an
/// address, sizes, strides or a box that no descriptor can have, and for a view that reaches past its tensor. Throws
/// Error(driver_failed) for what the driver refuses besides.
void make_tensor_map(const LoadedArgument& argument, const void* address, std::span<const std::int64_t> frame,
                     const std::string& kernel, CUtensorMap& map);

/// Returns the value of the expression. Throws Error(bad_input) that names `kernel`, `what` and the limits when it is
/// out of them.
std::int64_t size_or_throw(const manifest::Expression& expression, std::span<const std::int64_t> frame,
                           std::int64_t minimum, std::int64_t maximum, const std::string& kernel, const char* what);

}  // namespace kiln::jit

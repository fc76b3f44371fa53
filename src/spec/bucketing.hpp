// Problem -> bucket in one walk over the axes and selections that an op has: the first thing that the call lane does.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kiln/problem.hpp"
#include "spec/bucket.hpp"

namespace kiln::spec {

struct Op;

/// A bucket for hashing and comparing: its selections in one word, then the upper edge of each axis that the op has. What lies behind
/// those is not set.
struct BucketWords {
  std::array<std::uint64_t, 1 + max_axes> words;
  std::uint64_t hash;
};

/// What of a Problem is an op's: so many axes, these bytes of the selections. As made by default, all of it.
struct BucketForm {
  std::size_t axes = max_axes;
  std::uint64_t selections = ~std::uint64_t{0};

  [[nodiscard]] std::size_t words() const noexcept { return 1 + axes; }
  [[nodiscard]] BucketWords words_of(const Problem& bucket) const noexcept;
  [[nodiscard]] bool equal(const std::uint64_t* left, const std::uint64_t* right) const noexcept {
    std::uint64_t differing = left[0] ^ right[0];
    for (std::size_t i = 1; i <= axes; ++i) differing |= left[i] ^ right[i];
    return differing == 0;
  }
  /// Whether `words` are this bucket's.
  [[nodiscard]] bool is(const BucketWords& words, const Problem& bucket) const noexcept {
    std::uint64_t differing = words.words[0] ^ (std::bit_cast<std::uint64_t>(bucket.selections) & selections);
    for (std::size_t i = 0; i < axes; ++i) differing |= words.words[1 + i] ^ static_cast<std::uint64_t>(bucket.axes[i]);
    return differing == 0;
  }
  /// Of a bucket's words, one after the other. Multiplications do not wait for each other; the last one brings high bits, in which
  /// powers of two differ, down to where a table looks.
  class Hash {
   public:
    explicit Hash(std::uint64_t first) noexcept : sum_(first * multipliers[0]) {}
    void add(std::uint64_t word) noexcept { sum_ += word * *++multiplier_; }
    [[nodiscard]] std::uint64_t finish() const noexcept {
      constexpr std::uint64_t last = 0x9E3779B97F4A7C15;
      __extension__ using Wide = unsigned __int128;
      const Wide product = static_cast<Wide>(sum_ ^ (sum_ >> 32)) * last;
      return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    }

   private:
    std::uint64_t sum_;
    const std::uint64_t* multiplier_ = multipliers.data();
  };
  [[nodiscard]] std::uint64_t hash(const std::uint64_t* words) const noexcept {
    Hash result(words[0]);
    for (std::size_t i = 1; i <= axes; ++i) result.add(words[i]);
    return result.finish();
  }

 private:
  /// Odd, and otherwise arbitrary: from the fractional parts of the square roots of the first primes, as SHA-512 has them.
  static constexpr std::array<std::uint64_t, 1 + max_axes> multipliers = {
      0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1, 0x510E527FADE682D1,
      0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179, 0xCBBB9D5DC1059ED9};
};

class Bucketing {
 public:
  /// `op` outlives this and does not move.
  explicit Bucketing(const Op& op);

  /// is_valid and bucket_of at once: false for what is_valid refuses. No allocation, no exception.
  [[nodiscard]] bool find(const Problem& problem, BucketWords& bucket) const noexcept {
    const auto selections = std::bit_cast<std::uint64_t>(problem.selections);
    std::uint64_t wrong = ((selections + past_selections_) | selections) & top_of_selections_;
    bucket.words[0] = selections & form_.selections;
    BucketForm::Hash hash(bucket.words[0]);
    const std::int64_t* value = problem.axes.data();
    std::uint64_t* high = bucket.words.data();
    for (const AxisForm *axis = axes_.data(), *end = axis + form_.axes; axis != end; ++axis, ++value) {
      const auto size = static_cast<std::uint64_t>(*value);
      wrong |= static_cast<std::uint64_t>(!axis->takes(size));
      *++high = axis->high(size);
      hash.add(*high);
    }
    bucket.hash = hash.finish();
    return wrong == 0;
  }

  [[nodiscard]] const BucketForm& form() const noexcept { return form_; }

 private:
  struct AxisForm {
    std::uint64_t minimum = 1;
    std::uint64_t range = 0;  // maximum - minimum
    // value % multiple_of == 0, without a division: a multiple of the odd part times its inverse modulo 2^64 is the quotient, and
    // rotating by the power of two brings what is no multiple of it to the top (Granlund and Montgomery 1994, section 9).
    std::uint64_t inverse = 1;
    std::uint64_t largest_quotient = ~std::uint64_t{0};
    int twos = 0;
    PolicyKind kind = PolicyKind::exact;
    const BucketPolicy* policy = nullptr;

    [[nodiscard]] bool takes(std::uint64_t value) const noexcept {
      return value - minimum <= range && std::rotr(value * inverse, twos) <= largest_quotient;
    }
    /// BucketPolicy::high of a value that the axis takes; of another, any number.
    [[nodiscard]] std::uint64_t high(std::uint64_t value) const noexcept {
      if (kind == PolicyKind::exact) return value;
      const std::uint64_t maximum = minimum + range;
      if (kind == PolicyKind::pow2) {
        // The power of two at or above value; its highest bit is that of value - 1, doubled. 1 is its own.
        const std::uint64_t power = value <= 1 ? 1 : std::uint64_t{2} << (63 - std::countl_zero(value - 1));
        return power < maximum ? power : maximum;
      }
      return static_cast<std::uint64_t>(
          policy->high(static_cast<std::int64_t>(value), static_cast<std::int64_t>(maximum)));
    }
  };
  static AxisForm form_of(std::int64_t minimum, std::int64_t maximum, std::int64_t multiple,
                          const BucketPolicy& policy);

  BucketForm form_;
  // Each index is under 128, and so is what each byte of `past_selections_` adds to it to reach 128 when it is past its last value:
  // no byte carries into the next.
  std::uint64_t past_selections_ = 0;
  std::uint64_t top_of_selections_ = 0;
  std::array<AxisForm, max_axes> axes_;
};

}  // namespace kiln::spec

// Problem -> bucket in one walk over the axes and selections that an op has: the first thing that the hit path does.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kiln/problem.hpp"
#include "manifest/bucket.hpp"

namespace kiln::manifest {

struct Axis;
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
    for (std::size_t i = 0; i <= axes; ++i)  // mostly equal, and short: left early, it is not unrolled
      if (left[i] != right[i]) return false;
    return true;
  }
  /// Whether `words` are this bucket's.
  [[nodiscard]] bool is(const BucketWords& words, const Problem& bucket) const noexcept {
    if (words.words[0] != (std::bit_cast<std::uint64_t>(bucket.selections) & selections)) return false;
    for (std::size_t i = 0; i < axes; ++i)
      if (words.words[1 + i] != static_cast<std::uint64_t>(bucket.axes[i])) return false;
    return true;
  }
  /// Of a bucket's words, one after the other: a polynomial of them, in registers alone. The last multiplication brings low bits up, and
  /// high ones, in which powers of two differ, down: tables look at either end.
  class Hash {
   public:
    explicit Hash(std::uint64_t first) noexcept : sum_(first) {}
    void add(std::uint64_t word) noexcept { sum_ = sum_ * base + word; }
    [[nodiscard]] std::uint64_t finish() const noexcept {
      __extension__ using Wide = unsigned __int128;
      const Wide product = static_cast<Wide>(sum_ ^ (sum_ >> 32)) * base;
      return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    }

   private:
    static constexpr std::uint64_t base = 0x9E3779B97F4A7C15;  // odd, and 2^64 over the golden ratio
    std::uint64_t sum_;
  };
  [[nodiscard]] std::uint64_t hash(const std::uint64_t* words) const noexcept {
    Hash result(words[0]);
    for (std::size_t i = 1; i <= axes; ++i) result.add(words[i]);
    return result.finish();
  }
};

/// Over all of a problem, for hash tables.
struct ProblemHash {
  [[nodiscard]] std::size_t operator()(const Problem& problem) const noexcept {
    return BucketForm{}.words_of(problem).hash;
  }
};

class Bucketing {
 public:
  /// `op` outlives this and does not move.
  explicit Bucketing(const Op& op);

  /// is_valid and bucket_of at once: false for what is_valid refuses. No allocation, no exception.
  [[nodiscard]] bool find(const Problem& problem, BucketWords& bucket) const noexcept {
    if (!is_plain_) return find_any(problem, bucket);
    const auto selections = std::bit_cast<std::uint64_t>(problem.selections);
    std::uint64_t wrong = wrong_selections(selections);
    bucket.words[0] = selections & form_.selections;
    BucketForm::Hash hash(bucket.words[0]);
    for (std::size_t i = 0; i < form_.axes; ++i) {
      const auto size = static_cast<std::uint64_t>(problem.axes[i]);
      wrong |= plain_[i].wrong(size);
      hash.add(bucket.words[1 + i] = plain_[i].high(size));
    }
    bucket.hash = hash.finish();
    return wrong == 0;
  }

  [[nodiscard]] const BucketForm& form() const noexcept { return form_; }

 private:
  /// An axis that is exact or in powers of two, of multiples of a power of two: without a branch, since what a launch's branches
  /// did before is forgotten when the driver is done.
  struct PlainAxis {
    std::uint64_t minimum = 1;
    std::uint64_t range = 0;   // maximum - minimum
    std::uint64_t below = 0;   // bits that no size may have: multiple_of - 1
    std::uint64_t rounds = 0;  // all bits: to a power of two; none: exact

    /// Not 0 for a size that the axis does not take.
    [[nodiscard]] std::uint64_t wrong(std::uint64_t size) const noexcept {
      return (size & below) | static_cast<std::uint64_t>(size - minimum > range);
    }
    /// BucketPolicy::high of a size that the axis takes; of another, any number.
    [[nodiscard]] std::uint64_t high(std::uint64_t size) const noexcept {
      // Of 2 * size - 1 the highest bit alone is the power of two that `size` rounds up to.
      const std::uint64_t power = std::uint64_t{1} << (63 ^ std::countl_zero(2 * size - 1));
      const std::uint64_t edge = std::max(size, power & rounds);
      const std::uint64_t maximum = minimum + range;
      return std::min(edge, maximum);
    }
  };
  /// Any other.
  struct AnyAxis {
    std::uint64_t minimum = 1;
    std::uint64_t range = 0;  // maximum - minimum
    // value % multiple_of == 0, without a division: a multiple of the odd part times its inverse modulo 2^64 is the quotient, and
    // rotating by the power of two brings what is no multiple of it to the top (Granlund and Montgomery 1994, section 9).
    std::uint64_t inverse = 1;
    std::uint64_t largest_quotient = ~std::uint64_t{0};
    int twos = 0;
    const BucketPolicy* policy = nullptr;

    [[nodiscard]] bool takes(std::uint64_t value) const noexcept {
      return value - minimum <= range && std::rotr(value * inverse, twos) <= largest_quotient;
    }
  };
  static PlainAxis plain(const Axis& axis) noexcept;
  static AnyAxis any(const Axis& axis) noexcept;
  /// The high bit of each selection that is past its last value.
  [[nodiscard]] std::uint64_t wrong_selections(std::uint64_t selections) const noexcept {
    return ((selections + past_selections_) | selections) & top_of_selections_;
  }
  [[nodiscard]] bool find_any(const Problem& problem, BucketWords& bucket) const noexcept;

  BucketForm form_;
  // Each index is under 128, and so is what each byte of `past_selections_` adds to it to reach 128 when it is past its last value:
  // no byte carries into the next.
  std::uint64_t past_selections_ = 0;
  std::uint64_t top_of_selections_ = 0;
  bool is_plain_ = true;
  std::array<PlainAxis, max_axes> plain_;  // where all axes are
  std::array<AnyAxis, max_axes> any_;      // where one is not
};

}  // namespace kiln::manifest

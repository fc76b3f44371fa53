// Maps a problem to its bucket in one pass over the op's axes and selections. This is the first step of the hit path.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "kiln/problem.hpp"
#include "manifest/bucket_policy.hpp"

namespace kiln::manifest {

struct Axis;
struct Op;

/// The bytes of all selections, eight to a word.
using SelectionWords = std::array<std::uint64_t, max_selections / 8>;
static_assert(sizeof(SelectionWords) == sizeof(Problem::selections) && std::tuple_size_v<SelectionWords> == 2);

inline std::uint64_t selection_word(const Problem& problem, std::size_t word) noexcept {
  std::uint64_t result = 0;
  std::memcpy(&result, problem.selections.data() + word * sizeof result, sizeof result);
  return result;
}

/// A bucket for hashing and comparing: word 0 holds the first eight selections, the next words the upper edge of each
/// of the op's axes. An op with more selections has them in one further word. The words after them are not initialised.
struct BucketWords {
  std::array<std::uint64_t, max_axes + std::tuple_size_v<SelectionWords>> words;
  std::uint64_t hash;
};

/// The part of a Problem that an op uses: the number of axes, and a mask over the bytes of the selections. By default,
/// all of it.
struct BucketForm {
  std::size_t axes = max_axes;
  SelectionWords selections = {~std::uint64_t{0}, ~std::uint64_t{0}};
  std::size_t last_word = axes + 1;  // `axes`, or one more where the op has more than eight selections

  [[nodiscard]] bool has_many_selections() const noexcept { return last_word != axes; }
  [[nodiscard]] std::size_t words() const noexcept { return 1 + last_word; }
  [[nodiscard]] BucketWords words_of(const Problem& bucket) const noexcept;
  [[nodiscard]] bool equal(const std::uint64_t* left, const std::uint64_t* right) const noexcept {
    for (std::size_t i = 0; i <= last_word; ++i)  // an early return keeps the compiler from unrolling this short loop
      if (left[i] != right[i]) return false;
    return true;
  }
  /// Hashes a bucket's words, one after the other, as a polynomial in registers. The last multiplication mixes low bits
  /// into high ones and high bits, in which powers of two differ, into low ones, because hash tables use either end.
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
    static constexpr std::uint64_t base = 0x9E3779B97F4A7C15;  // odd; 2^64 divided by the golden ratio
    std::uint64_t sum_;
  };
  [[nodiscard]] std::uint64_t hash(const std::uint64_t* words) const noexcept {
    Hash result(words[0]);
    for (std::size_t i = 1; i <= last_word; ++i) result.add(words[i]);
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
  /// `op` must outlive this object and must not move.
  explicit Bucketing(const Op& op);
  Bucketing(const Bucketing&) = delete;

  /// Does is_valid and bucket_of in one pass: returns false where is_valid does, but for the rules of [op], which no
  /// bucket with a plan breaks. No allocation, no exception.
  [[nodiscard]] bool find(const Problem& problem, BucketWords& bucket) const noexcept {
    if (!is_plain_) return find_any(problem, bucket);
    const std::uint64_t selections = selection_word(problem, 0);
    std::uint64_t wrong = wrong_selections(selections, 0);
    bucket.words[0] = selections & form_.selections[0];
    BucketForm::Hash hash(bucket.words[0]);
    const PlainAxis* const plain = plain_for(selections);
    for (std::size_t i = 0; i < form_.axes; ++i) {
      const auto size = static_cast<std::uint64_t>(problem.axes[i]);
      wrong |= plain[i].wrong(size);
      hash.add(bucket.words[1 + i] = plain[i].high(size));
    }
    if (form_.has_many_selections()) {
      const std::uint64_t others = selection_word(problem, 1);
      wrong |= wrong_selections(others, 1);
      hash.add(bucket.words[form_.last_word] = others & form_.selections[1]);
    }
    bucket.hash = hash.finish();
    return wrong == 0;
  }

  /// Whether the problem is legal and `bucket`, the words of a bucket of the op, is its bucket. Needs no hash.
  [[nodiscard]] bool is_in(const Problem& problem, const std::uint64_t* bucket) const noexcept {
    if (!is_plain_) return is_in_any(problem, bucket);
    const std::uint64_t selections = selection_word(problem, 0);
    std::uint64_t wrong = wrong_selections(selections, 0) | ((selections & form_.selections[0]) ^ bucket[0]);
    const PlainAxis* const plain = plain_for(selections);
    for (std::size_t i = 0; i < form_.axes; ++i) {
      const auto size = static_cast<std::uint64_t>(problem.axes[i]);
      wrong |= plain[i].wrong(size) | (plain[i].high(size) ^ bucket[1 + i]);
    }
    if (form_.has_many_selections()) {
      const std::uint64_t others = selection_word(problem, 1);
      wrong |= wrong_selections(others, 1) | ((others & form_.selections[1]) ^ bucket[form_.last_word]);
    }
    return wrong == 0;
  }

  [[nodiscard]] const BucketForm& form() const noexcept { return form_; }

 private:
  /// An axis whose policy is exact or pow2 and whose multiple_of is a power of two. Evaluated without branches, because
  /// the driver's code between two launches evicts their branch predictions.
  struct PlainAxis {
    std::uint64_t minimum = 1;
    std::uint64_t range = 0;   // maximum - minimum
    std::uint64_t below = 0;   // multiple_of - 1: the bits that must be 0 in a size
    std::uint64_t rounds = 0;  // all bits set: pow2; none: exact

    /// Not 0 for a size that is not legal on the axis.
    [[nodiscard]] std::uint64_t wrong(std::uint64_t size) const noexcept {
      return (size & below) | static_cast<std::uint64_t>(size - minimum > range);
    }
    /// BucketPolicy::high for a legal size; an unspecified number for any other.
    [[nodiscard]] std::uint64_t high(std::uint64_t size) const noexcept {
      // The highest set bit of 2 * size - 1 is the power of two that `size` rounds up to.
      const std::uint64_t power = std::uint64_t{1} << (63 ^ std::countl_zero(2 * size - 1));
      const std::uint64_t edge = std::max(size, power & rounds);
      const std::uint64_t maximum = minimum + range;
      return std::min(edge, maximum);
    }
  };
  struct alignas(64) PlainAxes {  // begins at a cache line
    std::array<PlainAxis, max_axes> axes;
  };
  /// An axis of any other policy or multiple.
  struct AnyAxis {
    std::uint64_t minimum = 1;
    std::uint64_t range = 0;  // maximum - minimum
    // Tests value % multiple_of == 0 without a division. A multiple of the odd part, times that part's inverse modulo
    // 2^64, is the quotient; the rotation moves nonzero low bits to the top (Granlund and Montgomery 1994, section 9).
    std::uint64_t inverse = 1;
    std::uint64_t largest_quotient = ~std::uint64_t{0};
    int twos = 0;
    [[nodiscard]] bool takes(std::uint64_t value) const noexcept {
      return value - minimum <= range && std::rotr(value * inverse, twos) <= largest_quotient;
    }
  };
  static PlainAxis plain(const Axis& axis, const BucketPolicy& policy) noexcept;
  static AnyAxis any(const Axis& axis) noexcept;
  /// The axes for the types and choices of `selections`. Without a branch, as in PlainAxis.
  [[nodiscard]] const PlainAxis* plain_for(std::uint64_t selections) const noexcept {
    return plain_[(selections & deciding_) * to_top_ >> (64 - index_bits)];
  }
  void make_plain(const Op& op);
  /// Sets the high bit of each selection's byte whose index is past the last value.
  [[nodiscard]] std::uint64_t wrong_selections(std::uint64_t selections, std::size_t word) const noexcept {
    return ((selections + past_selections_[word]) | selections) & top_of_selections_[word];
  }
  [[nodiscard]] bool find_any(const Problem& problem, BucketWords& bucket) const noexcept;
  [[nodiscard]] bool is_in_any(const Problem& problem, const std::uint64_t* bucket) const noexcept;

  BucketForm form_;
  // Each byte of `past_selections_` brings an index past its last value to 128 or more. Both are under 128, so no byte
  // carries into the next.
  SelectionWords past_selections_{};
  SelectionWords top_of_selections_{};
  // Every axis is plain, and one selection at most decides the policies, one of the first word.
  bool is_plain_ = true;
  // Used when is_plain_. The multiplication moves the bits of the deciding selection to the top, where they are an
  // index of plain_.
  static constexpr int index_bits = 6;  // a selection has at most 64 values
  std::uint64_t deciding_ = 0;          // the mask of those bits; 0 where nothing decides
  std::uint64_t to_top_ = 1;
  std::array<const PlainAxis*, std::size_t{1} << index_bits> plain_{};
  std::vector<PlainAxes> by_value_;    // what plain_ points into: for each value of the deciding selection
  std::array<AnyAxis, max_axes> any_;  // used otherwise
  const Op& op_;
};

}  // namespace kiln::manifest

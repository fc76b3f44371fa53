#include "manifest/bucketing.hpp"

#include <bit>
#include <cassert>
#include <limits>

#include "manifest/op.hpp"

namespace kiln::manifest {
namespace {

// Newton's iteration doubles the number of correct bits. It begins with 3: an odd number is its own inverse modulo 8.
std::uint64_t inverse_of_odd(std::uint64_t odd) noexcept {
  std::uint64_t inverse = odd;
  for (int bits = 3; bits < 64; bits *= 2) inverse *= 2 - odd * inverse;
  return inverse;
}

}  // namespace

BucketWords BucketForm::words_of(const Problem& bucket) const noexcept {
  BucketWords result{};
  result.words[0] = selection_word(bucket, 0) & selections[0];
  for (std::size_t i = 0; i < axes; ++i) result.words[1 + i] = static_cast<std::uint64_t>(bucket.axes[i]);
  if (has_many_selections()) result.words[last_word] = selection_word(bucket, 1) & selections[1];
  result.hash = hash(result.words.data());
  return result;
}

Bucketing::PlainAxis Bucketing::plain(const Axis& axis) noexcept {
  PlainAxis form;
  form.minimum = static_cast<std::uint64_t>(axis.minimum);
  form.range = static_cast<std::uint64_t>(axis.maximum) - form.minimum;
  form.below = static_cast<std::uint64_t>(axis.multiple_of) - 1;
  form.rounds = axis.policy.kind == PolicyKind::pow2 ? ~std::uint64_t{0} : 0;
  return form;
}

Bucketing::AnyAxis Bucketing::any(const Axis& axis) noexcept {
  AnyAxis form;
  form.minimum = static_cast<std::uint64_t>(axis.minimum);
  form.range = static_cast<std::uint64_t>(axis.maximum) - form.minimum;
  const auto divisor = static_cast<std::uint64_t>(axis.multiple_of);
  form.twos = std::countr_zero(divisor);
  form.inverse = inverse_of_odd(divisor >> form.twos);
  form.largest_quotient = std::numeric_limits<std::uint64_t>::max() / divisor;
  form.policy = &axis.policy;
  return form;
}

bool Bucketing::find_any(const Problem& problem, BucketWords& bucket) const noexcept {
  const auto selections = std::bit_cast<SelectionWords>(problem.selections);
  bool valid = (wrong_selections(selections[0], 0) | wrong_selections(selections[1], 1)) == 0;
  bucket.words[0] = selections[0] & form_.selections[0];
  for (std::size_t i = 0; i < form_.axes; ++i) {
    const AnyAxis& axis = any_[i];
    const auto size = static_cast<std::uint64_t>(problem.axes[i]);
    valid = valid && axis.takes(size);
    bucket.words[1 + i] = static_cast<std::uint64_t>(
        axis.policy->high(problem.axes[i], static_cast<std::int64_t>(axis.minimum + axis.range)));
  }
  if (form_.has_many_selections()) bucket.words[form_.last_word] = selections[1] & form_.selections[1];
  bucket.hash = form_.hash(bucket.words.data());
  return valid;
}

bool Bucketing::is_in_any(const Problem& problem, const std::uint64_t* bucket) const noexcept {
  BucketWords found;
  return find_any(problem, found) && form_.equal(found.words.data(), bucket);
}

Bucketing::Bucketing(const Op& op) : form_{op.axes.size(), {}, op.axes.size()} {
  std::array<std::uint8_t, max_selections> mask{}, past{}, top{};
  constexpr std::size_t top_bit = 128;
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    const std::size_t values = op.selections[i].values.size();
    assert(values < top_bit);  // the reader of manifests allows 64
    mask[i] = 0xFF;
    past[i] = static_cast<std::uint8_t>(top_bit - values);
    top[i] = top_bit;
  }
  form_.selections = std::bit_cast<SelectionWords>(mask);
  past_selections_ = std::bit_cast<SelectionWords>(past);
  top_of_selections_ = std::bit_cast<SelectionWords>(top);
  if (form_.selections[1] != 0) {
    ++form_.last_word;
    is_plain_ = false;
  }
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const Axis& axis = op.axes[i];
    assert(axis.minimum >= 1);
    plain_[i] = plain(axis);
    any_[i] = any(axis);
    is_plain_ = is_plain_ && (axis.policy.kind == PolicyKind::exact || axis.policy.kind == PolicyKind::pow2) &&
                std::has_single_bit(static_cast<std::uint64_t>(axis.multiple_of));
  }
}

}  // namespace kiln::manifest

#include "manifest/bucketing.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <set>

#include "manifest/problem.hpp"

namespace kiln::manifest {
namespace {

// Newton's iteration doubles the number of correct bits. It begins with 3: an odd number is its own inverse modulo 8.
std::uint64_t inverse_of_odd(std::uint64_t odd) noexcept {
  std::uint64_t inverse = odd;
  for (int bits = 3; bits < 64; bits *= 2) inverse *= 2 - odd * inverse;
  return inverse;
}

/// The types and choices by which axes have one policy or another.
std::vector<std::size_t> deciding_selections(const Op& op) {
  std::set<std::size_t> deciding;
  for (const Axis& axis : op.axes)
    for (const PolicyCase& each : axis.policies)
      for (const int slot : each.when ? each.when->slots() : std::vector<int>())
        deciding.insert(static_cast<std::size_t>(slot - op.first_static()));
  return {deciding.begin(), deciding.end()};
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

Bucketing::PlainAxis Bucketing::plain(const Axis& axis, const BucketPolicy& policy) noexcept {
  PlainAxis form;
  form.minimum = static_cast<std::uint64_t>(axis.minimum);
  form.range = static_cast<std::uint64_t>(axis.maximum) - form.minimum;
  form.below = static_cast<std::uint64_t>(axis.multiple_of) - 1;
  form.rounds = policy.kind == PolicyKind::pow2 ? ~std::uint64_t{0} : 0;
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
        policy_of(op_, i, problem).high(problem.axes[i], static_cast<std::int64_t>(axis.minimum + axis.range)));
  }
  if (form_.has_many_selections()) bucket.words[form_.last_word] = selections[1] & form_.selections[1];
  bucket.hash = form_.hash(bucket.words.data());
  return valid;
}

bool Bucketing::is_in_any(const Problem& problem, const std::uint64_t* bucket) const noexcept {
  BucketWords found;
  return find_any(problem, found) && form_.equal(found.words.data(), bucket);
}

Bucketing::Bucketing(const Op& op) : form_{op.axes.size(), {}, op.axes.size()}, op_(op) {
  std::array<std::uint8_t, max_selections> mask{}, past{}, top{};
  constexpr std::size_t top_bit = 128;
  for (std::size_t i = 0; i < op.selections.size(); ++i) {
    const std::size_t values = op.selections[i].values.size();
    assert(values <= plain_.size());  // the reader of manifests sees to it
    mask[i] = 0xFF;
    past[i] = static_cast<std::uint8_t>(top_bit - values);
    top[i] = top_bit;
  }
  form_.selections = std::bit_cast<SelectionWords>(mask);
  past_selections_ = std::bit_cast<SelectionWords>(past);
  top_of_selections_ = std::bit_cast<SelectionWords>(top);
  if (form_.selections[1] != 0) ++form_.last_word;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const Axis& axis = op.axes[i];
    assert(axis.minimum >= 1);
    any_[i] = any(axis);
    is_plain_ = is_plain_ && std::has_single_bit(static_cast<std::uint64_t>(axis.multiple_of)) &&
                std::ranges::all_of(axis.policies, [](const PolicyCase& each) {
                  return each.policy.kind == PolicyKind::exact || each.policy.kind == PolicyKind::pow2;
                });
  }
  make_plain(op);
}

void Bucketing::make_plain(const Op& op) {
  const std::vector<std::size_t> deciding = deciding_selections(op);
  constexpr std::size_t in_first_word = sizeof(std::uint64_t);
  is_plain_ = is_plain_ && deciding.size() <= 1 && (deciding.empty() || deciding.front() < in_first_word);
  if (!is_plain_) return;
  Problem problem;
  by_value_.resize(deciding.empty() ? 1 : op.selections[deciding.front()].values.size());
  for (std::size_t value = 0; value < by_value_.size(); ++value) {
    if (!deciding.empty()) problem.selections[deciding.front()] = static_cast<std::uint8_t>(value);
    for (std::size_t i = 0; i < op.axes.size(); ++i)
      by_value_[value].axes[i] = plain(op.axes[i], policy_of(op, i, problem));
  }
  plain_.fill(by_value_.front().axes.data());  // an index past the last value is refused as a selection
  for (std::size_t value = 0; value < by_value_.size(); ++value) plain_[value] = by_value_[value].axes.data();
  if (deciding.empty()) return;
  const std::size_t shift = 8 * deciding.front();
  deciding_ = (plain_.size() - 1) << shift;
  to_top_ = std::uint64_t{1} << (64 - index_bits - shift);
}

}  // namespace kiln::manifest

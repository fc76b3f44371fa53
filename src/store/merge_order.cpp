#include "store/merge_order.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "kiln/error.hpp"
#include "store/integrity.hpp"

namespace kiln::store {
namespace {

constexpr std::int64_t batch_rows = 128;

manifest::Digest digest_of_candidates(const Record& record) {
  manifest::Hasher hasher;
  std::int64_t position = 0;
  for (const TriedCandidate& candidate : record.candidates) {
    const auto digest = digest_of(record.key, position++, candidate);
    hasher.field(std::span<const std::byte>(digest));
  }
  return hasher.finish();
}

double relative_interval(const Choice& choice) {
  if (choice.cost_ns <= 0) return std::numeric_limits<double>::infinity();
  return std::max(choice.high_ns - choice.low_ns, 0.0) /
         choice.cost_ns;  // 0 or more, since the mean of +infinity and -infinity is NaN
}

/// Negated mean samples, mean relative interval. Means, because sums would favour records with more choices.
auto precision_of(const Record& record) {
  double choices = 0, samples = 0, interval = 0;
  for (const Choice& choice : record.choices) {
    if (choice.role != Role::fastest) continue;
    ++choices;
    samples += static_cast<double>(choice.samples);
    interval += relative_interval(choice);
  }
  return std::tuple(-samples / choices, interval / choices);
}

template <class T>
Preference smaller(const T& a, const T& b) {
  return a < b ? Preference::first : b < a ? Preference::second : Preference::neither;
}

auto tie_breakers(const Record& record) {
  return std::tuple(digest_of(record), -static_cast<std::int64_t>(record.candidates.size()),
                    digest_of_candidates(record));
}

/// Throws Error(bad_file) unless keys ascend past `last`: a damaged index can skip rows or loop.
template <class Row, class Key>
void check_order(const std::vector<Row>& batch, const Key& last, const File& file) {
  const auto before = [](const Row& a, const Row& b) { return a.key < b.key; };
  if (batch.empty() || (last < batch.front().key && std::is_sorted(batch.begin(), batch.end(), before))) return;
  throw Error(ErrorKind::bad_file,
              fmt::format("'{}' cannot be read: its index does not lead to its rows in their order; "
                          "kiln cache verify says what is damaged",
                          file.path().string()));
}

}  // namespace

Preference prefer(const Record& a, const Record& b) {
  const Preference by_precision = smaller(precision_of(a), precision_of(b));
  return by_precision == Preference::neither ? smaller(tie_breakers(a), tie_breakers(b)) : by_precision;
}

Preference prefer(const PackedCubin& a, const PackedCubin& b) { return smaller(digest_of(a), digest_of(b)); }

template <>
void Cursor<Record>::fetch() {
  batch_ = file_->records_after(last_, batch_rows);
  check_order(batch_, last_, *file_);
  at_ = 0;
  ended_ = static_cast<std::int64_t>(batch_.size()) < batch_rows;
  if (!batch_.empty()) last_ = batch_.back().key;
}

template <>
void Cursor<PackedCubin>::fetch() {
  const bool first = last_ == manifest::Digest{};
  batch_ = file_->cubins_after(first ? std::span<const std::byte>() : std::span<const std::byte>(last_), batch_rows);
  if (!first) check_order(batch_, last_, *file_);
  at_ = 0;
  ended_ = static_cast<std::int64_t>(batch_.size()) < batch_rows;
  if (!batch_.empty()) last_ = batch_.back().key;
}

}  // namespace kiln::store

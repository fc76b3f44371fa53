#include "store/merge_order.hpp"

#include <limits>
#include <tuple>

#include "store/integrity.hpp"

namespace kiln::store {
namespace {

constexpr std::int64_t batch_rows = 128;

spec::Digest digest_of_candidates(const Record& record) {
  spec::Hasher hasher;
  std::int64_t position = 0;
  for (const Candidate& candidate : record.candidates) {
    const auto digest = digest_of(record.key, position++, candidate);
    hasher.field(std::span<const std::byte>(digest));
  }
  return hasher.finish();
}

auto foundation(const Record& record) {
  const double relative =
      record.cost_ns > 0 ? (record.high_ns - record.low_ns) / record.cost_ns : std::numeric_limits<double>::infinity();
  return std::tuple(-record.samples, relative);
}

auto tie(const Record& record) {
  return std::tuple(digest_of(record), -static_cast<std::int64_t>(record.candidates.size()),
                    digest_of_candidates(record));
}

}  // namespace

bool is_better(const Record& a, const Record& b) {
  if (foundation(a) != foundation(b)) return foundation(a) < foundation(b);
  return tie(a) < tie(b);
}

bool is_better(const PackedCubin& a, const PackedCubin& b) { return digest_of(a) < digest_of(b); }

template <>
void Cursor<Record>::fetch() {
  batch_ = file_->records_after(last_, batch_rows);
  at_ = 0;
  ended_ = static_cast<std::int64_t>(batch_.size()) < batch_rows;
  if (!batch_.empty()) last_ = batch_.back().key;
}

template <>
void Cursor<PackedCubin>::fetch() {
  const bool first = last_ == spec::Digest{};
  batch_ = file_->cubins_after(first ? std::span<const std::byte>() : std::span<const std::byte>(last_), batch_rows);
  at_ = 0;
  ended_ = static_cast<std::int64_t>(batch_.size()) < batch_rows;
  if (!batch_.empty()) last_ = batch_.back().key;
}

}  // namespace kiln::store

// Merging: which of two rows of one key is kept, and iteration over several files in the order of their keys.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "store/file.hpp"

namespace kiln::store {

/// Total orders over the rows of one key, so that merging is commutative and associative. Records: more samples, then
/// the smaller interval relative to its cost, both as means over the choices of Role::fastest. Ties: the smaller
/// digest, more candidates, the smaller digest of the candidates. Cubins: the smaller digest.
enum class Preference : std::int8_t { first, second, neither };  // neither: the rows are equal
Preference prefer(const Record& a, const Record& b);
Preference prefer(const PackedCubin& a, const PackedCubin& b);
template <class Row>
bool is_better(const Row& a, const Row& b) {
  return prefer(a, b) == Preference::first;
}

/// Iterates over a file's rows in the order of their keys. Fetches batches, so memory is bounded and no lock is held
/// between.
template <class Row>
class Cursor {
 public:
  explicit Cursor(File& file) : file_(&file) {}
  /// Returns the next row, or null at the end. Throws as File::records_after does.
  [[nodiscard]] const Row* front() {
    if (at_ == batch_.size() && !ended_) fetch();
    return at_ < batch_.size() ? &batch_[at_] : nullptr;
  }
  /// Returns front() and advances. Precondition: front() is not null.
  Row take() { return std::move(batch_[at_++]); }

 private:
  void fetch();
  File* file_;
  decltype(Row::key) last_{};  // the batch's last key, since take() moves rows out
  std::vector<Row> batch_;
  std::size_t at_ = 0;
  bool ended_ = false;
};

/// Calls `use` with the preferred row of each key, in the order of the keys. Returns the number of keys for which the
/// files hold different rows.
template <class Row, class Use>
std::int64_t merge(std::span<File* const> files, Use&& use) {
  std::int64_t conflicts = 0;
  std::vector<Cursor<Row>> cursors;
  for (File* file : files) cursors.emplace_back(*file);
  for (;;) {
    Cursor<Row>* first = nullptr;
    for (Cursor<Row>& each : cursors)
      if (each.front() != nullptr && (first == nullptr || each.front()->key < first->front()->key)) first = &each;
    if (first == nullptr) return conflicts;
    Row best = first->take();
    bool conflict = false;
    for (Cursor<Row>& each : cursors) {
      while (each.front() != nullptr && each.front()->key == best.key) {
        Row other = each.take();
        const Preference preference = prefer(best, other);
        conflict = conflict || preference != Preference::neither;
        if (preference == Preference::second) best = std::move(other);
      }
    }
    if (conflict) ++conflicts;
    use(std::move(best));
  }
}

}  // namespace kiln::store

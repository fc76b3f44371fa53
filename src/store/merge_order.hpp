// Which of two rows of one key is kept, and rows of several files in the order of their keys.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "store/file.hpp"

namespace kiln::store {

/// Total orders over the rows of one key, so that what is kept depends neither on sides nor on sequence: of records the one
/// with more samples a choice, then the smaller interval relative to its cost, both as means over the choices of Role::fastest,
/// then the smaller digest, then more candidates, then the smaller digest of those; of cubins the one with the smaller digest.
enum class Preference : std::int8_t { first, second, neither };  // neither: the rows are the same
Preference prefer(const Record& a, const Record& b);
Preference prefer(const PackedCubin& a, const PackedCubin& b);
template <class Row>
bool is_better(const Row& a, const Row& b) {
  return prefer(a, b) == Preference::first;
}

/// A file's rows by key, fetched in batches, so that memory stays bounded and no lock is held in between.
template <class Row>
class Cursor {
 public:
  explicit Cursor(File& file) : file_(&file) {}
  /// The next row, or null at the end. Throws as File::records_after does.
  [[nodiscard]] const Row* front() {
    if (at_ == batch_.size() && !ended_) fetch();
    return at_ < batch_.size() ? &batch_[at_] : nullptr;
  }
  /// front(), which must not be null, and moves on.
  Row take() { return std::move(batch_[at_++]); }

 private:
  void fetch();
  File* file_;
  decltype(Row::key) last_{};  // of the batch; rows are moved from as they are taken
  std::vector<Row> batch_;
  std::size_t at_ = 0;
  bool ended_ = false;
};

/// Calls `use` with the best row of each key over all files, by key. Returns for how many keys the files hold different rows.
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

// Which of two rows of one key is kept, and rows of several files in the order of their keys.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "store/file.hpp"

namespace kiln::store {

/// Total orders over the rows of one key, so that what is kept depends neither on sides nor on sequence: of records the one
/// with more samples, then the smaller interval relative to its cost, then the smaller digest, then more candidates, then
/// the smaller digest of those; of cubins the one with the smaller digest.
bool is_better(const Record& a, const Record& b);
bool is_better(const PackedCubin& a, const PackedCubin& b);

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

/// Calls `use` with the best row of each key over all files, by key.
template <class Row, class Use>
void merge(std::span<File* const> files, Use&& use) {
  std::vector<Cursor<Row>> cursors;
  for (File* file : files) cursors.emplace_back(*file);
  for (;;) {
    Cursor<Row>* first = nullptr;
    for (Cursor<Row>& each : cursors)
      if (each.front() != nullptr && (first == nullptr || each.front()->key < first->front()->key)) first = &each;
    if (first == nullptr) return;
    Row best = first->take();
    for (Cursor<Row>& each : cursors) {
      while (each.front() != nullptr && each.front()->key == best.key)
        if (Row other = each.take(); is_better(other, best)) best = std::move(other);
    }
    use(std::move(best));
  }
}

}  // namespace kiln::store

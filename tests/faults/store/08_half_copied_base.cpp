#include "faults/store/samples.hpp"
#include "faults/store/system_calls.hpp"
#include "faults/tally.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t page = 4096;

void seal(const Folder& folder, const std::string& name, int first, int last) {
  const auto file = File::in_memory();
  for (int at = first; at < last; ++at) {
    const auto cubin = sample_cubin_at(at, 3000);
    file->put(sample_record_at(at), &cubin);
  }
  export_file(*file, folder / name, {}, true);
}

/// Refused, or what it answers is right.
bool is_refused_or_right(const fs::path& path, std::int64_t& refused) {
  try {
    const auto file = File::open(path, Access::read_only);
    for (const Record& record : file->records({}, true))
      if (record.candidates.size() == 2 && !same(record, sample_record(record.key, record.at_edge().cost_ns)))
        return false;
    for (int at = 0; at < 20; ++at)
      if (const auto cubin = file->find_cubin(digest_named(std::to_string(at))))
        if (!same(*cubin, sample_cubin_at(at, 3000))) return false;
    return true;
  } catch (const Error& error) {
    ++refused;
    return error.kind() == ErrorKind::bad_file;
  }
}

TEST_CASE("fault 08: a sealed file whose first pages are of one version and whose last are of another is refused") {
  const Folder folder;
  seal(folder, "old.kiln", 0, 9);
  seal(folder, "new.kiln", 2, 12);
  const auto old_bytes = bytes_of(folder / "old.kiln"), new_bytes = bytes_of(folder / "new.kiln");
  std::int64_t cases = 0, refused = 0;
  for (const auto& [first, last] : {std::pair(&old_bytes, &new_bytes), std::pair(&new_bytes, &old_bytes)})
    for (std::size_t cut = page; cut < std::min(first->size(), last->size()); cut += page, ++cases) {
      CAPTURE(cut);
      write_bytes(folder / "mixed.kiln", first->substr(0, cut) + last->substr(cut));
      CHECK(is_refused_or_right(folder / "mixed.kiln", refused));
    }
  CHECK(refused > cases / 2);
  faults::tally(8, cases, "mixtures of two files");
}

TEST_CASE("fault 08: a sealed file that lost, gained or changed rows is refused as a base; a write removes the seal") {
  const Folder folder;
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"DELETE FROM record WHERE key = 'key1'", "its manifest states 3 record rows and it holds 2"},
      {"DELETE FROM cubin WHERE id = 1", "its manifest states 3 cubin rows and it holds 2"},
      {"INSERT INTO cubin SELECT 9, zeroblob(32), digest, op, source_digest, label, arch, compiler, name_expressions, "
       "lowered_names, image_bytes FROM cubin LIMIT 1",
       "its manifest states 3 cubin rows and it holds 4"},
      {"UPDATE record SET digest = zeroblob(32) WHERE key = 'key1'", "the digest of its manifest over its record rows"},
      {"UPDATE cubin SET digest = (SELECT digest FROM cubin WHERE id = 1)",
       "the digest of its manifest over its cubin rows"},
      {"DELETE FROM manifest WHERE source = 'cubin'", "its manifest is not one of records, candidates and cubins"}};
  for (const auto& change : changes) {
    CAPTURE(change.first);
    seal(folder, "a.kiln", 0, 3);
    run_sql(folder / "a.kiln", change.first);
    CHECK(contains(refusal([&] { File::open(folder / "a.kiln", Access::read_only); }), change.second));
  }
  seal(folder, "a.kiln", 0, 3);
  File::open(folder / "a.kiln", Access::read_write)->remove_record("key1");
  CHECK(File::open(folder / "a.kiln", Access::read_only)->stats().records == 2);
  faults::tally(8, static_cast<std::int64_t>(changes.size()), "sealed files of other rows");
}

/// Copies a file each time that it is about to be written to, as somebody who takes a backup at a bad moment.
class Copier : public faults::Watcher {
 public:
  Copier(const Folder& folder, fs::path from) : folder_(folder), from_(std::move(from)) {}
  faults::Fate before(const faults::Attempt& attempt) override {
    if (attempt.call == faults::Call::write) fs::copy_file(from_, folder_ / (std::to_string(copies_++) + ".kiln"));
    return {};
  }
  [[nodiscard]] int copies() const { return copies_; }

 private:
  const Folder& folder_;
  fs::path from_;
  int copies_ = 0;
};

TEST_CASE("fault 08: a file copied in the middle of a commit, without its journal, is refused or answers right") {
  const Folder folder, copies;
  const auto path = sample_file(folder / "a.kiln", 5, 3000);
  const auto file = File::open(path, Access::read_write);
  Copier copier(copies, path);
  {
    const faults::Watch watch(copier);
    for (const int at : {9, 1, 10}) {
      const auto cubin = sample_cubin_at(at, 3000);
      file->put(sample_record_at(at), &cubin);
    }
    file->remove_record("key0");
  }
  std::int64_t refused = 0;
  for (int copy = 0; copy < copier.copies(); ++copy) {
    CAPTURE(copy);
    CHECK(is_refused_or_right(copies / (std::to_string(copy) + ".kiln"), refused));
  }
  CHECK(copier.copies() > 20);
  faults::tally(8, copier.copies(), "copies in the middle of a commit");
}

}  // namespace
}  // namespace kiln::store

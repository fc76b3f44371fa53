// Pages whose count of entries is one bit off: rows are there and no index, or no page, leads to them.
#include <fstream>
#include <sstream>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/diff.hpp"
#include "store/key_files.hpp"
#include "store/signing.hpp"
#include "store/transfer.hpp"
#include "store/verify.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t page_bytes = 4096, count_at = 3;  // in a page's header
constexpr int rows = 40;

std::size_t page_of(const fs::path& path, const std::string& name) {
  return std::stoul(rows_of(path, "SELECT rootpage FROM sqlite_schema WHERE name = '" + name + "'"));
}

/// Takes one of the bits that are set from a page's count of entries; an empty string when there are fewer bits.
std::string with_fewer_entries(std::string bytes, std::size_t page, int bit) {
  const std::size_t at = (page - 1) * page_bytes + (page == 1 ? 100 : 0) + count_at + 1;  // the low byte
  for (unsigned mask = 0x80; mask > 0; mask >>= 1)
    if ((static_cast<unsigned char>(bytes[at]) & mask) != 0 && bit-- == 0) {
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
      return bytes;
    }
  return {};
}

bool is_tree_page(const std::string& bytes, std::size_t page) {
  const char type = bytes[(page - 1) * page_bytes + (page == 1 ? 100 : 0)];
  return type == 0x02 || type == 0x05 || type == 0x0a || type == 0x0d;
}

/// Every way to copy, compare or seal a file. Each throws, or loses no row.
std::vector<std::string> refusals(const Folder& folder, const fs::path& path, const fs::path& whole,
                                  const PrivateKey& key) {
  const auto file = File::open(path, Access::read_only);
  const auto sound = File::open(whole, Access::read_only);
  const auto taken = File::in_memory();
  File* const both[] = {sound.get(), file.get()};
  std::ostringstream text;
  return {refusal([&] { export_file(*file, folder / "out.kiln", {}, false); }),
          refusal([&] { export_text(*file, text, {}); }),
          refusal([&] { merge_files(both, folder / "both.kiln", {}, false); }),
          refusal([&] { merge_into(*file, *taken); }),
          refusal([&] { diff(*file, *sound, [](const RecordChange&) {}); }),
          refusal([&] { sign(path, key); })};
}

TEST_CASE("fault 83: a file that has an index without some of its rows is not copied, compared or signed") {
  const Folder folder;
  const auto whole = sample_file(folder / "whole.kiln", rows, 60);
  const auto bytes = bytes_of(whole);
  const auto key = PrivateKey::read(make_keys(folder, "one").secret);
  const auto path = folder / "lacking.kiln";
  std::int64_t cases = 0;
  for (const char* index : {"sqlite_autoindex_record_1", "sqlite_autoindex_cubin_1", "record_by_op"})
    for (int bit = 0; bit < 2; ++bit) {
      CAPTURE(index);
      const auto changed = with_fewer_entries(bytes, page_of(whole, index), bit);
      REQUIRE(!changed.empty());
      write_bytes(path, changed);
      for (const std::string& said : refusals(folder, path, whole, key)) {
        CHECK_MESSAGE(contains(said, "bad_file: '" + path.string() + "'"), said);
        ++cases;
      }
      CHECK(bytes_of(path) == changed);
      CHECK(!fs::exists(folder / "out.kiln"));
      CHECK(!fs::exists(folder / "both.kiln"));
    }
  faults::tally(83, cases, "copies, comparisons and signatures of a file with an index that lacks rows");
}

TEST_CASE("fault 83: compacting builds an index anew that lacks rows") {
  const Folder folder;
  const auto path = sample_file(folder / "lacking.kiln", rows, 60);
  std::string bytes = bytes_of(path);
  for (const char* index : {"sqlite_autoindex_record_1", "sqlite_autoindex_cubin_1", "record_by_op"})
    bytes = with_fewer_entries(bytes, page_of(path, index), 0);
  write_bytes(path, bytes);
  const auto file = File::open(path, Access::read_write);
  CHECK(!file->damage().empty());
  file->compact();
  CHECK(file->damage().empty());
  CHECK(export_file(*file, folder / "out.kiln", {}, false).added == rows);
  CHECK(verify(folder / "out.kiln").is_sound());
  faults::tally(83, 1, "files healed by compacting");
}

TEST_CASE("fault 83: whatever page has fewer entries than it should, an export holds every row or is refused") {
  const Folder folder;
  const auto whole = sample_file(folder / "whole.kiln", rows, 60);
  const auto bytes = bytes_of(whole);
  const auto path = folder / "lacking.kiln";
  std::int64_t cases = 0, refused = 0;
  for (std::size_t page = 2; page <= bytes.size() / page_bytes; ++page) {
    if (!is_tree_page(bytes, page)) continue;
    for (int bit = 0;; ++bit, ++cases) {
      const auto changed = with_fewer_entries(bytes, page, bit);
      if (changed.empty()) break;
      write_bytes(path, changed);
      CAPTURE(page);
      try {
        const auto file = File::open(path, Access::read_only);
        const auto report = export_file(*file, folder / "out.kiln", {}, true);
        CHECK(report.added == rows);
        CHECK(report.cubins == rows);
        CHECK(File::open(folder / "out.kiln", Access::read_only)->stats().candidates == 2 * rows);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::bad_file);
        ++refused;
      }
    }
  }
  CHECK(refused > 20);
  faults::tally(83, cases, "pages with fewer entries than they should have");
}

}  // namespace
}  // namespace kiln::store

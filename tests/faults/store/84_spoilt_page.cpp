// An overlay with one page of a table that is spoilt: at the table's root, where opening looks, or further down.
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t page_size = 4096;

void spoil(const fs::path& path, std::size_t page) {
  write_bytes(path, bytes_of(path).replace((page - 1) * page_size, page_size, page_size, '\0'));
}

/// The pages that hold rows of a table, its root first.
std::vector<std::size_t> pages_of(const fs::path& path, const std::string& table) {
  const auto bytes = bytes_of(path);
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])); };
  std::vector<std::size_t> pages{
      std::stoul(rows_of(path, "SELECT rootpage FROM sqlite_schema WHERE name = '" + table + "'"))};
  const std::size_t root = (pages[0] - 1) * page_size;
  if (bytes[root] != 0x05 && bytes[root] != 0x02) return pages;  // it has no pages below
  for (std::size_t cell = 0; cell < byte(root + 4); ++cell) {
    const std::size_t at = root + byte(root + 12 + 2 * cell) * 256 + byte(root + 13 + 2 * cell);
    pages.push_back(byte(at + 2) * 256 + byte(at + 3));
  }
  pages.push_back(byte(root + 10) * 256 + byte(root + 11));
  return pages;
}

TEST_CASE("fault 84: a base with a table that cannot be read is refused") {
  const Folder folder;
  const auto whole = bytes_of(sample_file(folder / "base.kiln", 3));
  const char* const tables[] = {
      "choice", "record", "candidate", "cubin", "image", "usage", "sqlite_autoindex_record_1"};
  for (const char* table : tables) {
    CAPTURE(table);
    write_bytes(folder / "base.kiln", whole);
    spoil(folder / "base.kiln", pages_of(folder / "base.kiln", table)[0]);
    check_refused(folder / "base.kiln", "is damaged");
  }
  faults::tally(84, std::size(tables), "tables of a base that cannot be read");
}

TEST_CASE("fault 84: an overlay with a spoilt page is set aside, said once, and what is tuned is kept in a new one") {
  const Folder folder;
  const auto path = folder / "overlay.kiln";
  const auto whole = bytes_of(sample_file(folder / "whole.kiln", 60, 60));
  std::int64_t cases = 0;
  for (const char* table : {"choice", "record", "candidate", "cubin", "image", "usage"}) {
    for (const std::size_t page : pages_of(folder / "whole.kiln", table)) {
      CAPTURE(table);
      CAPTURE(page);
      fs::remove_all(path.native() + ".damaged-1");
      write_bytes(path, whole);
      spoil(path, page);
      {
        Layers layers({.overlay = path});
        // All records are tuned again that are not found, as an engine does.
        for (int at = 0; at < 61; ++at) {
          if (layers.find_record(sample_key(at)) && layers.find_cubin(digest_named(std::to_string(at)))) continue;
          CHECK(layers.acquire_lease(sample_key(at), "me", 30));
          layers.put_all({{sample_record_at(at)}}, {{sample_cubin_at(at, 60)}}, Existing::replace);
          CHECK(layers.keeps(sample_key(at)));
          layers.release_lease(sample_key(at), "me");
        }
        CHECK(layers.not_kept().empty());
        const auto said = layers.warnings();
        CHECK(std::ranges::count_if(said, [&](const auto& each) { return contains(each, "was set aside as"); }) ==
              (fs::exists(path.native() + ".damaged-1") ? 1 : 0));
      }
      Layers again({.overlay = path});
      CHECK(again.warnings().empty());
      CHECK(again.find_record(sample_key(60)));
      CHECK(!fs::exists(path.native() + ".damaged-2"));
      ++cases;
    }
  }
  faults::tally(84, cases, "overlays with a spoilt page");
}

}  // namespace
}  // namespace kiln::store

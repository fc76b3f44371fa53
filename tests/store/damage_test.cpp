// What makes a file a .kiln file, and what is text.
#include "store/integrity.hpp"
#include "store/schema.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

TEST_CASE("the embedded schema is cache/schema.sql, and its numbers are those of the code") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  File::open(path, Access::read_write);
  const auto bytes = bytes_of(path);
  CHECK(bytes.substr(68, 4) == "KILN");
  CHECK(contains(std::string(schema_sql()), "PRAGMA application_id = 0x4b494c4e;"));
  CHECK(contains(std::string(schema_sql()), "PRAGMA user_version = " + std::to_string(schema_version) + ";"));
}

TEST_CASE("what is missing, no file or not to be read is named") {
  const Folder folder;
  CHECK(contains(refusal([&] { File::open(folder / "none.kiln", Access::read_only); }), "io: '"));
  CHECK(contains(refusal([&] { File::open(folder.path(), Access::read_only); }), "it is not a regular file"));
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(contains(refusal([&] { File::open(folder / "fifo", Access::read_only); }), "it is not a regular file"));
}

TEST_CASE("valid UTF-8 and nothing else is text") {
  for (const std::string_view good :
       {"", "a", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(is_utf8(good));
  for (const std::string_view bad : {"\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\x80", "\xed\xa0\x80", "\xf0\x8f\x80\x80",
                                     "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe1\x80"})
    CHECK(!is_utf8(bad));
}

}  // namespace
}  // namespace kiln::store

// Names of outputs that are more than a new file or an old one.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "faults/engine/fixture.hpp"
#include "store/support.hpp"

namespace kiln::faults {
namespace {

using store::bytes_of;
using store::write_bytes;

/// Each command that writes a file, up to the file's name.
std::vector<std::string> writers_of(const fs::path& overlay, bool text_only) {
  const std::string own = "--overlay " + overlay.string() + " ";
  std::vector<std::string> all = {"kiln report " + own + "--replace -o ",
                                  "kiln cache export --text --replace " + own + "-o ",
                                  "kiln trace rms_norm rows=1..9 cols=4096 dtype=f32 --count 3 --replace -o "};
  if (text_only) return all;
  all.push_back("kiln cache export --replace " + own + "-o ");
  all.push_back("kiln cache merge --replace " + overlay.string() + " -o ");
  return all;
}

}  // namespace

TEST_CASE("fault 46: an output is not written through a link, and files with names like its own stay") {
  const TemporaryFolder folder;
  const fs::path mine = folder / "mine.txt", link = folder / "link.kiln";
  write_bytes(mine, "mine");
  fs::create_symlink(mine, link);
  for (const char* name : {"link.kiln.new", "link.kiln.tmp", "out.kiln.new"}) write_bytes(folder / name, "mine");
  std::int64_t cases = 0;
  for (const std::string& writer : writers_of(tuned_overlay(folder), false)) {
    CHECK(contains(expect(2, writer + link.string()), "symbolic link"));
    CHECK(fs::is_symlink(link));
    CHECK(bytes_of(mine) == "mine");
    expect(0, writer + (folder / "out.kiln").string());
    for (const char* name : {"link.kiln.new", "link.kiln.tmp", "out.kiln.new"})
      CHECK(bytes_of(folder / name) == "mine");
    cases += 2;
  }
  write(folder / "workload.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = 32, cols = 128 }\ntypes = { dtype = [\"f32\"] }\n");
  const std::string warmed = expect(
      2, "kiln prewarm " + (folder / "workload.toml").string() + globals(folder, "new.kiln") + "-o " + link.string());
  CHECK(contains(warmed, "symbolic link"));
  CHECK(!fs::exists(folder / "new.kiln"));  // nothing was tuned first
  tally(46, cases + 1, "outputs to links, and beside files of similar names");
}

TEST_CASE("fault 46: text goes to devices and pipes as it is, and a .kiln file is not put in their place") {
  const TemporaryFolder folder;
  const fs::path node = folder / "null.kiln";
  const bool has_node = mknod(node.c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0;
  const fs::path overlay = tuned_overlay(folder);
  std::int64_t cases = 0;
  for (const std::string& writer : writers_of(overlay, true)) {
    const std::string whole = expect(0, writer + "/dev/stdout -q | cat");
    CHECK(whole.size() > 100);
    CHECK(expect(0, writer + "/dev/stdout -q > " + (folder / "file").string()).empty());
    CHECK(bytes_of(folder / "file") == whole);
    expect(0, writer + "/dev/null");
    CHECK(contains(expect(4, writer + "/dev/full"), "No space left"));
    if (has_node) expect(0, writer + node.string());
    cases += 4;
  }
  for (const std::string& writer : writers_of(overlay, false)) {
    if (contains(writer, "--text") || contains(writer, "report") || contains(writer, "trace")) continue;
    if (has_node) CHECK(contains(expect(2, writer + node.string()), "not a regular file"));
    ++cases;
  }
  struct stat status {};
  REQUIRE(stat("/dev/null", &status) == 0);
  CHECK(S_ISCHR(status.st_mode));
  if (has_node) CHECK((stat(node.c_str(), &status) == 0 && S_ISCHR(status.st_mode)));
  tally(46, cases, "outputs to devices and pipes");
}

TEST_CASE("fault 44: a base of text leaves no copy behind, however the command ends, and needs no folder for one") {
  const TemporaryFolder folder;
  expect(0, "kiln cache export --text --overlay " + tuned_overlay(folder).string() + " -o " +
                (folder / "base.jsonl").string());
  fs::create_directory(folder / "tmp");
  const std::string words =
      "kiln cache ls" + globals(folder, "other.kiln") + "--base " + (folder / "base.jsonl").string();
  CHECK(contains(expect(0, variable("TMPDIR", folder / "tmp") + words), "64"));
  CHECK(fs::is_empty(folder / "tmp"));
  expect(0, variable("TMPDIR", folder / "missing") + words);
}

}  // namespace kiln::faults

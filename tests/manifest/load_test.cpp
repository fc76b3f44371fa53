// Where ops are found, and which hides which.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kiln/error.hpp"
#include "manifest/op.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

namespace fs = std::filesystem;

class Directory {
 public:
  Directory() {
    std::string pattern = (fs::temp_directory_path() / "kiln_manifest_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Directory() { fs::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

  void write_op(const std::string& name, const testing::Folder& folder) const {
    fs::create_directories(path_ / name);
    for (const SourceFile& file : folder.files()) std::ofstream(path_ / name / file.name) << file.text.str();
  }

 private:
  fs::path path_;
};

const Op& named(const std::vector<Op>& ops, std::string_view name) {
  const auto found = std::ranges::find(ops, name, &Op::name);
  REQUIRE(found != ops.end());
  return *found;
}

}  // namespace

TEST_CASE("a folder on disk is read like a built-in one, with or without a slash at its end") {
  const Directory directory;
  directory.write_op("scale", testing::scale_folder());
  CHECK(load_op(directory.path() / "scale").name == "scale");
  CHECK(load_op((directory.path() / "scale").string() + "/").folder == (directory.path() / "scale").string());
}

TEST_CASE("an earlier path hides a later one of the same name, and the environment comes after both") {
  const Directory first;
  const Directory second;
  testing::Folder folder = testing::scale_folder();
  second.write_op("scale", folder);
  second.write_op("other", folder);
  folder.op = testing::replaced(folder.op, "revision = 3", "revision = 4");
  first.write_op("scale", folder);

  CHECK(named(load_ops(std::vector{first.path(), second.path()}), "scale").revision == 4);
  CHECK(named(load_ops(std::vector{second.path(), first.path()}), "scale").revision == 3);
  setenv("KILN_TEMPLATE_PATH", (":" + second.path().string() + ":").c_str(), 1);
  const auto ops = load_ops(std::vector{first.path()});
  unsetenv("KILN_TEMPLATE_PATH");
  CHECK(named(ops, "scale").revision == 4);
  CHECK(named(ops, "other").revision == 3);
  CHECK(named(load_ops(std::vector{second.path() / "scale"}), "scale").revision == 3);
}

TEST_CASE("a folder that does not exist is an error that names it") {
  CHECK_THROWS_WITH_AS(load_ops(std::vector<fs::path>{"/nowhere/at/all"}), doctest::Contains("/nowhere/at/all"), Error);
  CHECK_THROWS_AS(load_op("/nowhere/at/all"), Error);
  const Directory empty;
  CHECK_THROWS_WITH_AS(load_op(empty.path()), doctest::Contains("found no op.toml in the folder"), Error);
}

TEST_CASE("a byte order mark before a manifest or a source is no part of it") {
  const Directory plain, marked;
  const testing::Folder folder = testing::scale_folder();
  plain.write_op("scale", folder);
  marked.write_op("scale", folder);
  for (const SourceFile& file : folder.files())
    std::ofstream(marked.path() / "scale" / file.name) << "\xEF\xBB\xBF" << file.text.str();
  const Op with = load_op(marked.path() / "scale"), without = load_op(plain.path() / "scale");
  CHECK(with.files == without.files);
  CHECK(with.manifests == without.manifests);
}

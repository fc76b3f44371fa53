// Where ops are found, and which hides which.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/mistakes.hpp"
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

TEST_CASE("files and folders that begin with a dot, as editors and systems keep them, are no part of ops") {
  const Directory directory;
  const testing::Folder folder = testing::scale_folder();
  directory.write_op("scale", folder);
  directory.write_op(".trash", folder);
  const fs::path scale = directory.path() / "scale";
  const Op before = load_op(scale);
  fs::create_symlink("user@host.123:456", scale / ".#fast.toml");  // Emacs, while the file has unsaved changes
  fs::create_symlink("user@host.123:456", scale / ".#scale.cuh");
  std::ofstream(scale / "._fast.toml") << std::string("\0\5\x16\7", 4);  // macOS, on other file systems
  std::ofstream(scale / ".old.cuh") << "int old;";

  const Op op = load_op(scale);
  CHECK(op.files == before.files);
  CHECK(op.manifests == before.manifests);
  std::vector<Mistake> mistakes;
  static_cast<void>(load_op(scale, mistakes));
  CHECK(mistakes.empty());
  const Catalogue catalogue(std::vector{directory.path()});
  CHECK(catalogue.refused().empty());
  CHECK(catalogue.find("scale"));
  CHECK(!catalogue.find(".trash"));
}

TEST_CASE("a file that cannot be read is one mistake, without those of its empty stand-in") {
  const testing::Folder folder = testing::scale_folder();
  const auto mistakes_with = [&](const std::string& name, const std::function<void(const fs::path&)>& make) {
    const Directory directory;
    directory.write_op("scale", folder);
    const fs::path scale = directory.path() / "scale";
    fs::remove(scale / name);
    make(scale / name);
    std::vector<Mistake> mistakes;
    static_cast<void>(load_op(scale, mistakes));
    return mistakes;
  };
  const auto link = mistakes_with("lost.toml", [](const fs::path& at) { fs::create_symlink("nothing.toml", at); });
  REQUIRE(link.size() == 1);
  CHECK(link[0].found == "found a link to a file that is not there");
  CHECK(link[0].expected == "a regular file: replace or remove it");
  const auto nested = mistakes_with("more.toml", [](const fs::path& at) { fs::create_directory(at); });
  REQUIRE(nested.size() == 1);
  CHECK(nested[0].found == "found something that is no file");
  const auto wide =
      mistakes_with("op.toml", [](const fs::path& at) { std::ofstream(at) << std::string("[\0o\0p\0]\0", 8); });
  REQUIRE(wide.size() == 1);
  CHECK(wide[0].found.find("found a NUL byte") == 0);
}

TEST_CASE("a folder of templates that cannot be listed is named with what to name instead, and the variable") {
  const auto message = [] {
    try {
      static_cast<void>(Catalogue(std::vector<fs::path>()));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  setenv("KILN_TEMPLATE_PATH", "/nowhere/at/all", 1);
  const std::string by_variable = message();
  unsetenv("KILN_TEMPLATE_PATH");
  CHECK(by_variable ==
        "cannot list the template folder '/nowhere/at/all' of KILN_TEMPLATE_PATH: No such file or directory; name a "
        "folder that holds the folders of ops, or is one");
  CHECK_THROWS_WITH_AS(Catalogue(std::vector<fs::path>{"/nowhere/at/all"}),
                       "cannot list the template folder '/nowhere/at/all': No such file or directory; name a folder "
                       "that holds the folders of ops, or is one",
                       Error);
}

TEST_CASE("an op's folder that this user may not read is refused by its name, and no other folder is") {
  if (geteuid() == 0 && setegid(65534) == 0 && seteuid(65534) != 0) return;  // root may read everything
  struct Back {
    ~Back() {
      if (getuid() == 0) static_cast<void>(seteuid(0) == 0 && setegid(0) == 0);
    }
  } const back;
  const Directory directory;
  for (const char* name : {"scale", "lost+found"}) {
    directory.write_op(name, testing::scale_folder());
    fs::permissions(directory.path() / name, fs::perms::none);
  }
  const Catalogue catalogue(std::vector{directory.path()});
  for (const char* name : {"scale", "lost+found"}) fs::permissions(directory.path() / name, fs::perms::owner_all);
  REQUIRE(catalogue.refused().size() == 1);
  CHECK(catalogue.refused()[0].name == "scale");
  CHECK(catalogue.refused()[0].why == "'" + (directory.path() / "scale").string() +
                                          "' cannot be read: Permission denied, expected a folder that this user may "
                                          "list and read");
  CHECK_THROWS_WITH_AS(static_cast<void>(catalogue.index_of("scale")), doctest::Contains("Permission denied"), Error);
}

TEST_CASE("an unknown op is refused with the nearest name, and with where an op of one's own is looked for") {
  const Catalogue catalogue(std::vector<fs::path>{});
  CHECK_THROWS_WITH_AS(
      static_cast<void>(catalogue.index_of("rms_nrom")),
      doctest::Contains("there is no op 'rms_nrom' (did you mean 'rms_norm'?); an op of your own is in "
                        "the template paths of the options or in KILN_TEMPLATE_PATH; there are: "),
      Error);
}

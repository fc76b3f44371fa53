// Ops that are read when they are first asked for.
#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

namespace fs = std::filesystem;

/// A folder of ops with `scale` in it, as the fixture writes it or with another op.toml.
class ScaleFolder {
 public:
  explicit ScaleFolder(const std::string& op_toml = {}) {
    std::string pattern = (fs::temp_directory_path() / "kiln_manifest_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
    fs::create_directories(path / "scale");
    for (const SourceFile& file : testing::scale_folder().files())
      std::ofstream(path / "scale" / file.name) << file.text.str();
    if (!op_toml.empty()) std::ofstream(path / "scale" / "op.toml") << op_toml;
  }
  ~ScaleFolder() { fs::remove_all(path); }
  ScaleFolder(const ScaleFolder&) = delete;
  ScaleFolder& operator=(const ScaleFolder&) = delete;
  fs::path path;
};

}  // namespace

TEST_CASE("a built-in op is not read before it is asked for, and then by one of those that ask") {
  const Catalogue catalogue({});
  const auto index = catalogue.find("rms_norm");
  REQUIRE(index);
  CHECK(catalogue.name(*index) == "rms_norm");
  CHECK(catalogue.read_so_far()[*index].axes.empty());
  std::vector<const Op*> found(4);
  {
    std::vector<std::jthread> threads;
    for (const Op*& each : found) threads.emplace_back([&catalogue, &index, &each] { each = &catalogue[*index]; });
  }
  for (const Op* each : found) CHECK(each == &catalogue.read_so_far()[*index]);
  CHECK(found[0]->axes.size() == 2);
  CHECK(found[0]->name == "rms_norm");
  for (std::size_t other = 0; other < catalogue.size(); ++other)
    if (other != *index) CHECK(catalogue.read_so_far()[other].axes.empty());
}

TEST_CASE("all of a catalogue are the ops that load_ops gives, in its order") {
  const ScaleFolder folder;
  const std::vector paths{folder.path};
  const Catalogue catalogue(paths);
  const auto all = catalogue.all();
  const auto loaded = load_ops(paths);
  REQUIRE(all.size() == loaded.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].name == loaded[i].name);
    CHECK(all[i].name == catalogue.name(i));
    CHECK(all[i].implementations.size() == loaded[i].implementations.size());
  }
  CHECK(all[0].name == "scale");
  CHECK(!catalogue.find("no_such_op"));
}

TEST_CASE("an op whose manifest is wrong is refused by name, and the others of its folder serve") {
  const ScaleFolder folder("[op]\nsummary = 3\n");
  fs::create_directories(folder.path / "rms_norm");
  std::ofstream(folder.path / "rms_norm" / "op.toml") << "[op\n";
  fs::create_directories(folder.path / "other");
  for (const SourceFile& file : testing::scale_folder().files())
    std::ofstream(folder.path / "other" / file.name) << file.text.str();
  const std::vector paths{folder.path};
  const Catalogue catalogue(paths);
  CHECK(catalogue[catalogue.index_of("other")].axes.size() == 2);
  CHECK(catalogue.find("softmax"));
  CHECK_THROWS_WITH_AS((void)catalogue.index_of("scale"), doctest::Contains("the op 'scale' is refused: "), Error);
  CHECK_THROWS_WITH_AS((void)catalogue.index_of("scale"), doctest::Contains("scale/op.toml:2: "), Error);
  REQUIRE(catalogue.refused().size() == 2);
  CHECK_MESSAGE(!catalogue.find("rms_norm"), "the built-in op does not stand in for the user's");
  CHECK_THROWS_WITH_AS(load_ops(paths), doctest::Contains("op.toml"), Error);
}

TEST_CASE("a folder of ops that cannot be listed is an error at once") {
  const std::vector<fs::path> paths{"/nowhere/at/all"};
  CHECK_THROWS_WITH_AS(Catalogue{paths}, doctest::Contains("/nowhere/at/all"), Error);
}

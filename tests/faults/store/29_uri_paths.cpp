#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& special_names() {
  static const std::vector<std::string> names = {"file:x?mode=memory",
                                                 ":memory:",
                                                 "file::memory:",
                                                 "file:y%20z?immutable=1#f",
                                                 "file:z?vfs=unix-none",
                                                 "?mode=ro",
                                                 "%2e%2e%2fx",
                                                 "q'uo\"te.kiln",
                                                 " ",
                                                 "-rf",
                                                 "new\nline"};
  return names;
}

TEST_CASE("fault 29: a path that looks like a URI or a special name is a path") {
  const Folder folder;
  for (const std::string& name : special_names()) {
    CAPTURE(name);
    File::open(folder / name, Access::read_write)->put(sample_record("key"), nullptr);
    CHECK(fs::is_regular_file(folder / name));
    const auto file = File::open(folder / name, Access::read_only);
    CHECK(file->find_record("key"));
    export_file(*file, folder / (name + "2"), {}, false);
    CHECK(fs::is_regular_file(folder / (name + "2")));
    CHECK(Layers({.overlay = folder / name}).find_record("key"));
  }
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) ==
        2 * static_cast<std::ptrdiff_t>(special_names().size()));
  faults::tally(29, 4 * static_cast<std::int64_t>(special_names().size()), "openings of special names");
}

TEST_CASE("fault 29: such a name relative to the working directory is a path too") {
  const Folder folder;
  const int status = exit_status(in_child([&] {
    fs::current_path(folder.path());
    for (const std::string& name : special_names()) {
      File::open(name, Access::read_write)->put(sample_record("key"), nullptr);
      if (!fs::is_regular_file(folder / name)) return false;
    }
    return true;
  }));
  CHECK(status == 0);
  faults::tally(29, static_cast<std::int64_t>(special_names().size()), "relative names");
}

TEST_CASE("fault 29: what is no path is a typed error") {
  for (const std::string& path : {std::string("a\0b", 3), std::string(), std::string("/"), std::string("folder/")})
    CHECK(contains(refusal([&] { File::open(path, Access::read_write); }), "bad_input"));
  const std::string too_long(5000, 'x');
  CHECK(!refusal([&] { File::open("/tmp/" + too_long, Access::read_write); }).empty());
  CHECK(Layers({.overlay = "/tmp/" + too_long}).warnings().size() == 1);
  faults::tally(29, 6, "names that are no path");
}

}  // namespace
}  // namespace kiln::store

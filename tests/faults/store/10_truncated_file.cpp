#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

TEST_CASE("fault 10: a base cut off at any length, or longer than it says, is refused") {
  const Folder folder;
  const auto whole = bytes_of(sample_file(folder / "sample.kiln"));
  std::int64_t cases = 0;
  for (std::size_t length = 0; length < whole.size(); length += length < 128 ? 1 : 509, ++cases) {
    CAPTURE(length);
    write_bytes(folder / "cut.kiln", whole.substr(0, length));
    check_refused(folder / "cut.kiln", "is damaged");
  }
  write_bytes(folder / "long.kiln", whole + std::string(4096, '\0'));
  check_refused(folder / "long.kiln", "was it copied in part?");
  faults::tally(10, cases + 1, "lengths of a base");
}

TEST_CASE("fault 10: a damaged overlay is set aside under another name, said once, and a new one begun") {
  const Folder folder;
  const auto path = sample_file(folder / "overlay.kiln");
  const auto whole = bytes_of(path);
  int number = 0;
  for (std::size_t length = 0; length < whole.size(); length += length < 16 ? 7 : 1531) {
    CAPTURE(length);
    const auto cut = whole.substr(0, length);
    write_bytes(path, cut);
    write_bytes(path.string() + "-journal", "not a journal");
    {
      Layers layers({.overlay = path});
      const auto aside = path.string() + ".damaged-" + std::to_string(++number);
      REQUIRE(layers.warnings().size() == 1);
      CHECK(contains(layers.warnings()[0], "it was set aside as '" + aside + "' and a new overlay begun"));
      CHECK(bytes_of(aside) == cut);
      CHECK(layers.layers()[0].refused.empty());
      layers.overlay().put(sample_record("key"), nullptr);
    }
    Layers again({.overlay = path});
    CHECK(again.warnings().empty());
    CHECK(again.find_record("key"));
  }
  faults::tally(10, number, "lengths of an overlay");
}

}  // namespace
}  // namespace kiln::store

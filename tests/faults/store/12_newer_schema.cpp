#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/format.hpp"
#include "store/layers.hpp"

namespace kiln::store {
namespace {

TEST_CASE("fault 12: a newer format is refused by its number and left as it is") {
  const Folder folder;
  const auto path = sample_file(folder / "sample.kiln");
  for (const std::int64_t version : {std::int64_t{schema_version} + 1, std::int64_t{7}, std::int64_t{2147483647}}) {
    run_sql(path, "PRAGMA user_version = " + std::to_string(version));
    check_refused(path, "its format is version " + std::to_string(version) + " and this Kiln reads up to " +
                            std::to_string(schema_version));
    const auto before = bytes_of(path);
    Layers layers({.overlay = path});
    REQUIRE(layers.warnings().size() == 1);
    CHECK(contains(layers.warnings()[0], "use a newer Kiln"));
    layers.overlay().put(sample_record("mine"), nullptr);
    CHECK(layers.find_record("mine"));
    CHECK(bytes_of(path) == before);
  }
  faults::tally(12, 9, "openings of a newer format");
}

}  // namespace
}  // namespace kiln::store

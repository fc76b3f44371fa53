// The shipped records, cache/*.jsonl: they load, export to the same text, and serve every size of their buckets.
#include <algorithm>
#include <map>
#include <sstream>

#include "manifest/region.hpp"
#include "store/transfer.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> shipped_files() {
  std::vector<fs::path> files;
  for (const auto& each : fs::directory_iterator(fs::path(KILN_SOURCE_DIR) / "cache"))
    if (each.path().extension() == ".jsonl") files.push_back(each.path());
  return files;
}

const manifest::Op& op_named(const std::string& name) {
  static std::map<std::string, manifest::Op> ops;
  auto found = ops.find(name);
  if (found == ops.end())
    found = ops.emplace(name, manifest::load_op(fs::path(KILN_SOURCE_DIR) / "templates" / name)).first;
  return found->second;
}

double volume(const manifest::Op& op, const manifest::Region& region) {
  double volume = 1;
  for (const std::size_t axis : manifest::open_axes(op, region.low))
    volume *= static_cast<double>(region.high.axes[axis] - region.low.axes[axis] + 1);
  return volume;
}

bool overlap(const manifest::Op& op, const manifest::Region& a, const manifest::Region& b) {
  return std::ranges::all_of(manifest::open_axes(op, a.low), [&](std::size_t axis) {
    return a.low.axes[axis] <= b.high.axes[axis] && b.low.axes[axis] <= a.high.axes[axis];
  });
}

/// Returns why the choices of a role do not serve each size of the bucket once, or an empty string.
std::string gap_in(const manifest::Op& op, const Problem& bucket, const Record& record, Role role) {
  std::vector<manifest::Region> regions;
  double covered = 0;
  for (const Choice& choice : record.choices) {
    if (choice.role != role) continue;
    const auto region = manifest::parse_region(op, bucket, choice.sizes);
    if (!region) return "'" + choice.sizes + "' are no sizes of it";
    for (const manifest::Region& other : regions)
      if (overlap(op, *region, other)) return "'" + choice.sizes + "' overlaps with " + manifest::to_string(op, other);
    regions.push_back(*region);
    covered += volume(op, *region);
  }
  if (regions.back().high != bucket) return "the last choice does not serve its upper edge";
  return covered == volume(op, manifest::whole_of(op, bucket)) ? "" : "some of its sizes have no choice";
}

bool is_library(const manifest::Op& op, const Choice& choice) {
  const auto found = std::ranges::find(op.implementations, choice.implementation, &manifest::Implementation::name);
  return found != op.implementations.end() && found->is_library();
}

TEST_CASE("the records that ship load, and are exported as the text that ships") {
  REQUIRE(!shipped_files().empty());
  for (const fs::path& path : shipped_files()) {
    CAPTURE(path.string());
    std::ifstream text(path);
    const auto file = File::in_memory();
    CHECK(refusal([&] { import_text(text, path.filename().string(), *file); }) == "");
    std::ostringstream exported;
    export_text(*file, exported, {});
    CHECK(exported.str() == bytes_of(path));
  }
}

TEST_CASE(
    "the records that ship have a choice for each size of their buckets, and one without the library where it needs one") {
  for (const fs::path& path : shipped_files()) {
    std::ifstream text(path);
    const auto file = File::in_memory();
    import_text(text, path.filename().string(), *file);
    for (const Record& record : file->records()) {
      CAPTURE(record.key);
      const manifest::Op& op = op_named(record.op);
      const auto bucket = manifest::parse_bucket(op, record.bucket);
      REQUIRE(bucket);
      CHECK(gap_in(op, *bucket, record, Role::fastest) == "");
      const auto of_library = [&](const Choice& each) { return is_library(op, each); };
      const bool has_stand_in =
          std::ranges::find(record.choices, Role::without_library, &Choice::role) != record.choices.end();
      CHECK(has_stand_in == std::ranges::any_of(record.choices, of_library));
      if (has_stand_in) CHECK(gap_in(op, *bucket, record, Role::without_library) == "");
      for (const Choice& choice : record.choices)
        CHECK_FALSE((choice.role == Role::without_library && of_library(choice)));
    }
  }
}

}  // namespace
}  // namespace kiln::store

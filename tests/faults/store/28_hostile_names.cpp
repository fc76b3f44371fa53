#include <rapidcheck.h>

#include <sstream>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

using namespace std::string_literals;

constexpr std::size_t megabyte = std::size_t{1} << 20;

std::vector<std::string> hostile_names(std::size_t longest) {
  return {"it's \"quoted\"; DROP TABLE record; --"s,
          "nul\0inside"s,
          "\0"s,
          "line\nline\r\n"s,
          "%s%n{}{0}"s,
          "?1 :name @name $name"s,
          "*_%[]^"s,
          "\xf0\x9f\x94\xa5"s,
          "\xef\xbf\xbe\xe2\x80\xae"s,
          "' OR 1 = 1 UNION SELECT sql FROM sqlite_schema --"s,
          std::string(longest, 'x')};
}

/// Every text of a record, a cubin, a lease and a count.
void fill(const std::string& name, Record& record, CubinRow& cubin) {
  record = sample_record(name);
  record.op = record.device_class = record.bucket = name;
  for (Choice& each : record.choices) each.sizes = each.implementation = each.config = each.compiler = name;
  record.candidates[0].reason = record.candidates[1].config = name;
  cubin = sample_cubin(name);
  cubin.op = cubin.label = cubin.arch = cubin.compiler = name;
  cubin.name_expressions = {name, "", "a\",\"b"};
  cubin.lowered_names = {"", name};
}

/// Whether each comes back as it was put, by its own name and no other.
bool comes_back(File& file, const std::string& name) {
  Record record;
  CubinRow cubin;
  fill(name, record, cubin);
  file.put(record, &cubin);
  file.add_to_histogram({{name, name, 3}});
  const auto found = file.find_record(name, true);
  const auto found_cubin = file.find_cubin(cubin.key);
  const auto listed = file.records(name);
  bool counted = false;
  for (const HistogramRow& row : file.histogram())
    counted = counted || (row.op == name && row.problem == name && row.launches == 3);
  return found && same(*found, record) && found_cubin && same(*found_cubin, cubin) && listed.size() == 1 && counted &&
         file.acquire_lease(name, name, 60) && !file.acquire_lease(name, "other", 60) &&
         !file.acquire_lease(name, name + "x", 60);
}

TEST_CASE("fault 28: names are taken literally, whatever they hold") {
  const Folder folder;
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  for (const std::string& name : hostile_names(megabyte)) {
    CAPTURE(name.substr(0, 60));
    CHECK(comes_back(*file, name));
  }
  CHECK(file->stats().records == static_cast<std::int64_t>(hostile_names(megabyte).size()));
  CHECK(quick_check(folder / "a.kiln") == "ok\n");
  faults::tally(28, static_cast<std::int64_t>(hostile_names(megabyte).size()), "names chosen to hurt");
}

TEST_CASE("fault 28: hostile names survive an export, a merge and text") {
  const Folder folder;
  const auto names = hostile_names(megabyte / 16);
  const auto file = File::in_memory();
  for (const std::string& name : names) comes_back(*file, name);
  export_file(*file, folder / "out.kiln", {}, false);
  const auto merged = File::in_memory();
  merge_into(*File::open(folder / "out.kiln", Access::read_only), *merged);
  std::stringstream text;
  export_text(*merged, text, {});
  const auto imported = File::in_memory();
  import_text(text, "text", *imported);
  for (const std::string& name : names) {
    const auto wanted = file->find_record(name, true);
    REQUIRE(wanted);
    for (File* copy : {merged.get(), imported.get()}) {
      const auto found = copy->find_record(name, true);
      REQUIRE(found);
      CHECK(same(*found, *wanted));
    }
    CHECK(merged->find_cubin(digest_named(name)));
  }
  faults::tally(28, 3 * static_cast<std::int64_t>(names.size()), "names through export, merge and text");
}

TEST_CASE("fault 28: any bytes at all are a name, or a typed error that stores nothing") {
  std::int64_t cases = 0;
  const auto file = File::in_memory();
  CHECK(rc::check([&] {
    const auto bytes = *rc::gen::container<std::string>(
        rc::gen::weightedOneOf<char>({{3, rc::gen::arbitrary<char>()}, {1, rc::gen::elementOf("'\";-?%\\"s)}}));
    const auto name = std::to_string(cases++) + bytes;
    const auto before = file->stats().records;
    bool stored = false;
    const auto said = refusal([&] { stored = comes_back(*file, name); });
    if (said.empty()) {
      RC_ASSERT(stored);
    } else {
      RC_ASSERT(contains(said, "bad_input: "));
      RC_ASSERT(contains(said, "UTF-8"));
      RC_ASSERT(file->stats().records == before);
    }
  }));
  faults::tally(28, cases, "arbitrary names");
}

}  // namespace
}  // namespace kiln::store

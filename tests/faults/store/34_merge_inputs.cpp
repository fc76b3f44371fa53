#include <rapidcheck.h>

#include <algorithm>
#include <sstream>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::string text_of(File& file) {
  std::ostringstream text;
  export_text(file, text, {});
  return text.str();
}

/// Every cubin and record of a file as text, to compare files by.
std::string content_of(File& file) {
  auto content = text_of(file);
  for (const CubinRow& cubin : file.cubins()) content += manifest::to_hex(cubin.key) + " " + cubin.label + "\n";
  return content;
}

/// A file with a few rows of few keys, so that conflicts of every kind are common.
std::unique_ptr<File> arbitrary_file() {
  auto file = File::in_memory();
  for (int rows = *rc::gen::inRange(0, 8); rows > 0; --rows) {
    auto record = sample_record("key" + std::to_string(*rc::gen::inRange(0, 3)), *rc::gen::inRange(0, 3));
    record.choices.resize(*rc::gen::inRange<std::size_t>(1, 4));
    for (Choice& choice : record.choices) {
      choice.samples = *rc::gen::inRange(1, 4);
      choice.high_ns = std::max(choice.low_ns, choice.cost_ns + *rc::gen::inRange(-1, 2));
      choice.config = *rc::gen::element<std::string>("a", "b");
    }
    record.candidates.resize(*rc::gen::inRange<std::size_t>(0, 3));
    auto cubin = sample_cubin(record.choices[0].config, 10);
    cubin.label = std::to_string(*rc::gen::inRange(0, 3));
    file->put(record, &cubin);
  }
  return file;
}

std::string merged(std::initializer_list<File*> files) {
  const auto into = File::in_memory();
  for (File* file : files) merge_into(*file, *into);
  return content_of(*into);
}

TEST_CASE("fault 34: merging is commutative, associative and idempotent") {
  std::int64_t cases = 0;
  CHECK(rc::check([&] {
    const auto a = arbitrary_file();
    const auto b = arbitrary_file();
    const auto c = arbitrary_file();
    const auto all = merged({a.get(), b.get(), c.get()});
    RC_ASSERT(merged({c.get(), a.get(), b.get()}) == all);
    RC_ASSERT(merged({b.get(), a.get(), b.get(), c.get(), c.get(), a.get()}) == all);
    const auto before = content_of(*a);
    merge_into(*a, *a);
    RC_ASSERT(content_of(*a) == before);
    merge_into(*c, *b);
    merge_into(*b, *a);
    RC_ASSERT(content_of(*a) == all);
    ++cases;
  }));
  faults::tally(34, cases, "triples of files in other orders");
}

TEST_CASE("fault 34: one file of several is the same, byte for byte, whatever their order and repetition") {
  const Folder folder;
  std::int64_t cases = 0;
  CHECK(rc::check([&] {
    const auto a = arbitrary_file();
    const auto b = arbitrary_file();
    const auto c = arbitrary_file();
    const auto bytes = [&](std::vector<File*> files) {
      merge_files(files, folder / "out.kiln", {}, true);
      return bytes_of(folder / "out.kiln");
    };
    const auto all = bytes({a.get(), b.get(), c.get()});
    RC_ASSERT(bytes({c.get(), b.get(), a.get()}) == all);
    RC_ASSERT(bytes({b.get(), b.get(), c.get(), a.get(), a.get(), c.get()}) == all);
    const auto back = File::open(folder / "out.kiln", Access::read_only);
    RC_ASSERT(content_of(*back) == merged({a.get(), b.get(), c.get()}));
    RC_ASSERT(bytes({back.get(), a.get()}) == all);
    ++cases;
  }));
  faults::tally(34, cases, "files merged into one in other orders");
}

TEST_CASE("fault 34: rows that do not hold are not merged, and the others are") {
  const Folder folder;
  const auto damaged = sample_file(folder / "damaged.kiln", 6);
  run_sql(damaged,
          "UPDATE choice SET samples = 1000000, config = 'evil' WHERE record = 2;"
          "UPDATE candidate SET reason = 'evil' WHERE record = 3 AND position = 0;"
          "UPDATE cubin SET lowered_names = '[\"evil\"]' WHERE id = 4;"
          "UPDATE image SET frame = x'28b52ffd' WHERE cubin = 5;"
          "DELETE FROM image WHERE cubin = 6");
  const auto before = bytes_of(damaged);
  const auto from = File::open(damaged, Access::read_only);
  const auto good = File::open(sample_file(folder / "good.kiln", 2), Access::read_write);
  const auto check_rows = [](File& file) {
    CHECK(file.stats().records == 5 + 1);
    CHECK(same(file.find_record("key1", true).value(), sample_record_at(1)));
    CHECK(file.stats().cubins == 3);
    CHECK(!contains(text_of(file), "evil"));
  };
  merge_into(*from, *good);
  check_rows(*good);
  const std::vector<File*> files = {from.get(), good.get()};
  merge_files(files, folder / "out.kiln", {}, false);
  check_rows(*File::open(folder / "out.kiln", Access::read_only));
  CHECK(from->counters().quarantined >= 5);
  CHECK(bytes_of(damaged) == before);
  faults::tally(34, 10, "damaged rows offered to a merge");
}

TEST_CASE("fault 34: an impossible row under a right digest is not merged either") {
  const auto from = File::in_memory();
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", 2);
  CHECK(contains(refusal([&] {
                   std::istringstream lines(text_of(*File::open(path, Access::read_only)) + "{\"key\":\"x\"}\n");
                   import_text(lines, "hostile.jsonl", *from);
                 }),
                 "bad_input: hostile.jsonl:3: "));
  CHECK(from->stats().records == 0);  // all of the text or nothing
  std::string nested = "{\"key\":";
  for (int depth = 0; depth < 100000; ++depth) nested += "[";
  std::istringstream lines(nested);
  CHECK(contains(refusal([&] { import_text(lines, "nested.jsonl", *from); }), "stand inside each other"));
  faults::tally(34, 2, "hostile texts");
}

TEST_CASE("fault 34: importing text twice, or in another order, changes nothing") {
  const Folder folder;
  const auto file = File::open(sample_file(folder / "a.kiln", 8), Access::read_only);
  const auto text = text_of(*file);
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::int64_t cases = 0;
  CHECK(rc::check([&] {
    auto some = lines;
    const auto again = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(lines));
    some.insert(some.end(), again.begin(), again.end());
    std::stringstream shuffled;
    for (std::size_t left = some.size(); left > 0; --left) {
      const auto at = *rc::gen::inRange<std::size_t>(0, left);
      shuffled << some[at] << '\n';
      std::swap(some[at], some[left - 1]);
    }
    const auto into = File::in_memory();
    import_text(shuffled, "text", *into);
    RC_ASSERT(text_of(*into) == text);
    ++cases;
  }));
  faults::tally(34, cases, "shuffled texts");
}

}  // namespace
}  // namespace kiln::store

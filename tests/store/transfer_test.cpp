#include "store/transfer.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <tuple>

#include "store/json.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::string text_of(File& file, const Selection& selection = {}) {
  std::ostringstream text;
  export_text(file, text, selection);
  return text.str();
}

std::unique_ptr<File> from_text(const std::string& text) {
  auto file = File::in_memory();
  std::istringstream lines(text);
  import_text(lines, "text", *file);
  return file;
}

std::unique_ptr<File> sample(int records) {
  auto file = File::in_memory();
  for (int at = records; at-- > 0;) {
    const auto name = std::to_string(at);
    const auto cubin = sample_cubin(name);
    file->put(sample_record("key " + name, 0.1 * at), &cubin);
  }
  return file;
}

/// Returns every cubin and record of a file as text, to compare files.
std::string content_of(File& file) {
  auto content = text_of(file);
  for (const CubinRow& cubin : file.cubins()) content += manifest::to_hex(cubin.key) + " " + cubin.label + "\n";
  return content;
}

TEST_CASE("text holds a record a line, sorted by key, and gives back the same records") {
  const auto file = sample(12);
  const auto text = text_of(*file);
  CHECK(std::ranges::count(text, '\n') == 12);
  CHECK(
      text.starts_with(R"({"key":"key 0","op":"rms_norm","revision":3,"device_class":"sm_90/mp132","regime":"cold",)"));
  CHECK(text.find("\"key 10\"") < text.find("\"key 2\""));
  const auto back = from_text(text);
  CHECK(text_of(*back) == text);
  for (const Record& record : file->records({}, true)) CHECK(same(back->find_record(record.key, true).value(), record));
}

TEST_CASE("text leaves out what was not selected") {
  const auto file = sample(2);
  auto other = sample_record("other");
  other.op = "softmax";
  other.device_class = "sm_80/mp108";
  file->put(other, nullptr);
  CHECK(!contains(text_of(*file, {.candidates = false}), "candidates"));
  CHECK(std::ranges::count(text_of(*file, {.op = "softmax"}), '\n') == 1);
  CHECK(std::ranges::count(text_of(*file, {.device_class = "sm_90/mp132"}), '\n') == 2);
}

TEST_CASE("any record survives a file and its text") {
  CHECK(rc::check([] {
    const auto word = [] { return *rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127)); };
    const auto cost = [] { return std::abs(*rc::gen::arbitrary<double>()); };
    Record record = sample_record("k" + word());
    record.op = word();
    record.choices.resize(1 + *rc::gen::inRange<std::size_t>(0, 3), record.choices[0]);
    for (Choice& choice : record.choices) {
      choice.role = *rc::gen::element(Role::fastest, Role::without_library);
      choice.sizes = word();
      choice.config = word();
      choice.compiler = word();
      choice.cost_ns = cost();
      std::tie(choice.low_ns, choice.high_ns) = std::minmax({cost(), cost()});
      choice.samples = 1 + std::abs(std::int64_t{*rc::gen::arbitrary<std::int32_t>()});
    }
    record.choices[0].role = Role::fastest;
    record.provenance.device_name = word() + "\xc3\xa9";
    record.revision = *rc::gen::arbitrary<std::int64_t>();
    record.candidates[1].reason = word();
    record.candidates[0].cost_ns = cost();
    const auto file = File::in_memory();
    file->put(record, nullptr);
    RC_ASSERT(same(file->find_record(record.key, true).value(), record));
    const auto back = from_text(text_of(*file));
    RC_ASSERT(same(back->find_record(record.key, true).value(), record));
  }));
}

TEST_CASE("a line that does not hold is named, and nothing is written") {
  const auto good = text_of(*sample(2));
  const auto refused = [&](const std::string& line, std::string_view words) {
    const auto file = File::in_memory();
    std::istringstream lines(good + line + "\n");
    const auto found = refusal([&] { import_text(lines, "cache/h200.jsonl", *file); });
    CAPTURE(found);
    CHECK(contains(found, "bad_input: cache/h200.jsonl:3: "));
    CHECK(contains(found, words));
    CHECK(file->records().empty());
  };
  const auto line = good.substr(0, good.find('\n'));
  const auto with = [&](const std::string& old, const std::string& fresh) {
    auto changed = line;
    REQUIRE(contains(changed, old));
    return changed.replace(changed.find(old), old.size(), fresh);
  };
  refused("no JSON", "not JSON");
  refused("[]", "found array, expected an object");
  refused(line + "}", "not JSON");
  refused(with("\"samples\":40,", ""), "field 'samples' is missing");
  refused(with("\"samples\":40,", "\"samples\":\"40\","), "field 'samples' is string, expected an integer");
  refused(with("\"samples\":40,", "\"samples\":18446744073709551615,"), "past the largest number");
  refused(with("\"samples\":40,", "\"samples\":-1,"), "a choice's samples is negative");
  refused(with("\"samples\":40,", "\"samples\":40,\"samples\":41,"), "field 'samples' is given twice");
  refused(with("\"samples\":40,", "\"samples\":40,\"colour\":1,"), "field 'colour' is unknown");
  refused(with("\"driver_version\":13000", "\"driver_version\":9999999999"), "past the largest number");
  refused(with("\"role\":\"fastest\"", "\"role\":\"slowest\""), "'slowest', which is no role");
  refused(with("\"choices\":[", "\"choices\":[],\"none\":["), "field 'none' is unknown");
  refused(with("\"choices\":[", "\"none\":["), "field 'choices' is missing");
  refused(with("\"choices\":[", "\"choices\":[5,"), "found number, expected an object");
  refused(
      "{\"key\":\"old\",\"op\":\"rms_norm\",\"revision\":3,\"device_class\":\"sm_90\",\"regime\":\"cold\",\"bucket\":"
      "\"rows=1\",\"implementation\":\"vectorized\",\"config\":\"threads=1\"}",
      "field 'baseline_ns' is missing");
  refused(with("\"verdict\":\"ok\"", "\"verdict\":\"fine\""), "'fine', which is no verdict");
  refused(with("\"key\":\"key 0\"", "\"key\":\"\""), "key is empty");
  refused(with("\"baseline_ns\":0.0", "\"baseline_ns\":-2"), "baseline_ns is not a finite number");
  refused(with("\"baseline_ns\":0.0", "\"baseline_ns\":1e999"), "not JSON");
  refused(with("\"low_ns\":0.0", "\"low_ns\":9.0"), "a choice's low_ns is greater than high_ns");
  refused(with("\"cost_ns\":0.0,\"low_ns\":0.0,\"high_ns\":0.0,\"samples\":40",
               "\"cost_ns\":9.0,\"low_ns\":0.0,\"high_ns\":9.0,\"samples\":0"),
          "a choice's samples is 0, and cost_ns is not");
}

TEST_CASE("a record whose fields contradict its key is refused, whichever field it is") {
  Record record = sample_record("rms_norm@3 | rows=pow2:512 cols=exact:4096 | dtype=bf16 | sm_90/mp132 | cold");
  const auto refused = [&](auto&& change) {
    Record changed = record;
    change(changed);
    std::istringstream line(to_json(changed));
    const auto file = File::in_memory();
    return contains(refusal([&] { import_text(line, "a.jsonl", *file); }),
                    "a.jsonl:1: key is not that of its op, revision, bucket, device class and regime");
  };
  CHECK_FALSE(refused([](Record&) {}));
  CHECK(refused([](Record& changed) { changed.op = "softmax"; }));
  CHECK(refused([](Record& changed) { changed.revision = 4; }));
  CHECK(refused([](Record& changed) { changed.device_class = "sm_80/mp108"; }));
  CHECK(refused([](Record& changed) { changed.regime = "hot"; }));
  for (const char* bucket : {"rows=1024 cols=4096 dtype=bf16", "rows=512 cols=4096 dtype=f32", "rows=512 dtype=bf16",
                             "rows=512 cols=4096", "rows=512 cols=4096 dtype=bf16 residual=none", ""})
    CHECK(refused([&](Record& changed) { changed.bucket = bucket; }));
  record.key = "rms_norm@3 |  |  | sm_90/mp132 | cold";
  CHECK(refused([](Record&) {}));
  CHECK_FALSE(refused([](Record& changed) { changed.bucket.clear(); }));
}

TEST_CASE("an exported file holds the same rows, is sealed, and is the same file each time") {
  const Folder folder;
  const auto file = sample(5);
  const auto report = export_file(*file, folder / "a.kiln", {}, false);
  CHECK(report.added == 5);
  CHECK(report.cubins == 5);
  export_file(*File::open(folder / "a.kiln", Access::read_only), folder / "b.kiln", {}, false);
  CHECK(bytes_of(folder / "a.kiln") == bytes_of(folder / "b.kiln"));
  const auto back = File::open(folder / "a.kiln", Access::read_only);
  CHECK(content_of(*back) == content_of(*file));
  CHECK(back->counters().quarantined == 0);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 2);
}

TEST_CASE("files of the same content, written in other orders, are exported as the same bytes") {
  const Folder folder;
  const auto a = File::in_memory(), b = File::in_memory();
  for (int at = 0; at < 200; ++at) {
    for (const auto& [file, number] : {std::pair(a.get(), at), std::pair(b.get(), 199 - at)}) {
      const auto cubin = sample_cubin(std::to_string(number));
      if (file == b.get()) file->put(sample_record("key" + std::to_string(number), 7), nullptr);  // replaced below
      file->put(sample_record("key" + std::to_string(number)), &cubin);
    }
  }
  export_file(*a, folder / "a.kiln", {}, false);
  export_file(*b, folder / "b.kiln", {}, false);
  CHECK(bytes_of(folder / "a.kiln") == bytes_of(folder / "b.kiln"));
}

TEST_CASE("a merge of several files says for how many keys they hold different records") {
  const Folder folder;
  const auto a = sample(3), b = sample(4), c = File::in_memory();
  c->put(with_samples(sample_record("key 1", 77), 41), nullptr);
  File* const files[] = {a.get(), b.get(), c.get()};
  const auto report = merge_files(files, folder / "all.kiln", {}, false);
  CHECK(report.added == 4);
  CHECK(report.cubins == 4);
  CHECK(report.conflicts == 1);
  File* const others[] = {c.get(), b.get(), a.get()};
  CHECK(merge_files(others, folder / "again.kiln", {}, false).conflicts == 1);
  CHECK(bytes_of(folder / "again.kiln") == bytes_of(folder / "all.kiln"));
  CHECK(File::open(folder / "all.kiln", Access::read_only)->find_record("key 1")->at_edge().cost_ns == 77);
}

TEST_CASE("an export leaves out what was not selected") {
  const Folder folder;
  const auto file = sample(2);
  auto old = sample_cubin("old");
  old.arch = "sm_80";
  file->put_cubin(old);
  CHECK(export_file(*file, folder / "a.kiln", {.cubins = false, .candidates = false}, false).cubins == 0);
  CHECK(File::open(folder / "a.kiln", Access::read_only)->stats().candidates == 0);
  CHECK(export_file(*file, folder / "b.kiln", {.device_class = "sm_90/mp132"}, false).cubins == 2);
}

TEST_CASE("an export replaces a file only when told to, and leaves it whole when it fails") {
  const Folder folder;
  const auto file = sample(1);
  write_bytes(folder / "a.kiln", "precious");
  CHECK(contains(refusal([&] { export_file(*file, folder / "a.kiln", {}, false); }),
                 "bad_input: '" + (folder / "a.kiln").string() + "' exists"));
  CHECK(bytes_of(folder / "a.kiln") == "precious");
  export_file(*file, folder / "a.kiln", {}, true);
  CHECK(File::open(folder / "a.kiln", Access::read_only)->stats().records == 1);
  CHECK(contains(refusal([&] { export_file(*file, folder / "none" / "a.kiln", {}, true); }), "make its folder first"));
}

TEST_CASE("a merge keeps the better of two records and all cubins") {
  const auto ours = sample(3);
  const auto theirs = sample(4);
  theirs->put(with_samples(sample_record("key 1", 77), 41), nullptr);
  const auto report = merge_into(*theirs, *ours);
  CHECK(report.added == 1);
  CHECK(report.replaced == 1);
  CHECK(report.kept == 2);
  CHECK(report.cubins == 1);
  CHECK(ours->find_record("key 1")->at_edge().cost_ns == 77);
  CHECK(merge_into(*theirs, *ours).kept == 4);
}

TEST_CASE("machine code of a file that others may write is not merged or exported into one's own") {
  const Folder folder;
  const auto file = sample(2);
  export_file(*file, folder / "theirs.kiln", {}, false);
  fs::permissions(folder / "theirs.kiln", fs::perms::others_write, fs::perm_options::add);
  const auto theirs = File::open(folder / "theirs.kiln", Access::read_only);
  const auto ours = File::in_memory();
  auto report = merge_into(*theirs, *ours);
  CHECK(report.added == 2);
  CHECK(report.cubins == 0);
  CHECK(report.untrusted_cubins == 2);
  report = export_file(*theirs, folder / "copy.kiln", {}, false);
  CHECK(report.untrusted_cubins == 2);
  CHECK(File::open(folder / "copy.kiln", Access::read_only)->stats().cubins == 0);
}

TEST_CASE("of records that differ in one choice a merge keeps the better founded one, whichever way it is made") {
  const auto merged = [](const Record& a, const Record& b) {
    const auto one = File::in_memory(), other = File::in_memory();
    one->put(a, nullptr);
    other->put(b, nullptr);
    const auto both_ways = [](File& from, File& to) {
      const auto into = File::in_memory();
      merge_into(to, *into);
      merge_into(from, *into);
      return into->find_record("key", true).value();
    };
    const Record found = both_ways(*one, *other);
    CHECK(same(found, both_ways(*other, *one)));
    return found;
  };
  const auto record = sample_record("key");
  auto other = record;
  other.choices[0].config = "threads=128 vector=8";
  other.choices[0].samples = 41;
  CHECK(same(merged(record, other), other));  // more samples on the mean
  other.choices[0].samples = 40;
  other.choices[0].high_ns += 10;
  CHECK(same(merged(record, other), record));  // a wider interval
  other = record;
  other.choices[2].samples = 1000;  // the choices without the library do not count
  other.choices[0].low_ns -= 1;
  CHECK(same(merged(record, other), record));
  other = record;
  other.choices.insert(other.choices.begin(), with_samples(record, 20).choices[0]);
  CHECK(same(merged(record, other), record));  // more choices, fewer samples each
}

}  // namespace
}  // namespace kiln::store

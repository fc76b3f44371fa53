#include "store/transfer.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

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

/// Every cubin and record of a file as text, to compare files by.
std::string content_of(File& file) {
  auto content = text_of(file);
  for (const CubinRow& cubin : file.cubins()) content += spec::to_hex(cubin.key) + " " + cubin.label + "\n";
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
    record.config = word();
    record.provenance.device_name = word() + "\xc3\xa9";
    record.cost_ns = cost();
    record.low_ns = cost();
    record.high_ns = cost();
    record.revision = *rc::gen::arbitrary<std::int64_t>();
    record.samples = std::abs(*rc::gen::arbitrary<std::int32_t>());
    record.candidates[1].reason = word();
    record.candidates[1].cost_ns = cost();
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
  refused(with("\"samples\":40,", "\"samples\":-1,"), "samples is negative");
  refused(with("\"samples\":40,", "\"samples\":40,\"samples\":41,"), "field 'samples' is given twice");
  refused(with("\"samples\":40,", "\"samples\":40,\"colour\":1,"), "field 'colour' is unknown");
  refused(with("\"driver_version\":13000", "\"driver_version\":9999999999"), "past the largest number");
  refused(with("\"verdict\":\"ok\"", "\"verdict\":\"fine\""), "'fine', which is no verdict");
  refused(with("\"key\":\"key 0\"", "\"key\":\"\""), "key is empty");
  refused(with("\"baseline_ns\":0.0", "\"baseline_ns\":-2"), "baseline_ns is not a finite number");
  refused(with("\"baseline_ns\":0.0", "\"baseline_ns\":1e999"), "not JSON");
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
  auto better = sample_record("key 1", 77);
  better.samples = 41;
  c->put(better, nullptr);
  File* const files[] = {a.get(), b.get(), c.get()};
  const auto report = merge_files(files, folder / "all.kiln", {}, false);
  CHECK(report.added == 4);
  CHECK(report.cubins == 4);
  CHECK(report.conflicts == 1);
  File* const others[] = {c.get(), b.get(), a.get()};
  CHECK(merge_files(others, folder / "again.kiln", {}, false).conflicts == 1);
  CHECK(bytes_of(folder / "again.kiln") == bytes_of(folder / "all.kiln"));
  CHECK(File::open(folder / "all.kiln", Access::read_only)->find_record("key 1")->cost_ns == 77);
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
  CHECK(contains(refusal([&] { export_file(*file, folder / "none" / "a.kiln", {}, true); }), "cannot be made"));
}

TEST_CASE("a merge keeps the better of two records and all cubins") {
  const auto ours = sample(3);
  const auto theirs = sample(4);
  auto better = sample_record("key 1", 77);
  better.samples = 41;
  theirs->put(better, nullptr);
  const auto report = merge_into(*theirs, *ours);
  CHECK(report.added == 1);
  CHECK(report.replaced == 1);
  CHECK(report.kept == 2);
  CHECK(report.cubins == 1);
  CHECK(ours->find_record("key 1")->cost_ns == 77);
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

/// A bucket that is split at these edges; a negative one was left untried.
std::unique_ptr<File> split_at(const std::vector<int>& edges, double cost_ns) {
  auto file = File::in_memory();
  file->put(sample_record("a", cost_ns), nullptr);
  for (const int edge : edges) {
    auto part = sample_record("a | m<=" + std::to_string(std::abs(edge)), cost_ns);
    if (edge < 0) part.samples = 0;
    file->put(part, nullptr);
    part.key += " | without library";
    file->put(part, nullptr);
  }
  return file;
}

/// The keys of what splits it, and its costs, whichever way the files are merged.
std::string split_of(const std::vector<File*>& files) {
  const Folder folder;
  merge_files(files, folder / "all.kiln", {}, false);
  const auto all = File::open(folder / "all.kiln", Access::read_only);
  std::string text;
  for (const Record& each : all->records_under("a | "))
    if (!each.key.ends_with("library")) text += each.key.substr(7) + ":" + std::to_string(each.samples) + " ";
  const auto one_by_one = File::in_memory(), as_text = File::in_memory();
  for (File* file : files) {
    merge_into(*file, *one_by_one);
    std::istringstream lines(text_of(*file));
    import_text(lines, "text", *as_text);
  }
  CHECK(text_of(*one_by_one) == text_of(*all));
  CHECK(text_of(*as_text) == text_of(*all));
  return text;
}

TEST_CASE("of splits of one bucket the one that came farthest is merged, and no other's parts") {
  const auto check = [](File& farther, File& other, const std::string& expected) {
    CHECK(split_of({&farther, &other}) == expected);
    CHECK(split_of({&other, &farther}) == expected);
    CHECK(split_of({&other, &farther, &other}) == expected);
  };
  const auto finished = split_at({96, 80}, 2), begun = split_at({112, -96}, 1), farther = split_at({104, -90}, 3);
  check(*finished, *begun, "80:40 96:40 ");
  check(*split_at({112}, 2), *begun, "112:40 ");
  check(*farther, *begun, "104:40 90:0 ");
  check(*finished, *farther, "80:40 96:40 ");
  check(*begun, *split_at({}, 2), "112:40 96:0 ");
  check(*finished, *split_at({104}, 1), "104:40 80:40 96:40 ");
}

TEST_CASE("texts of two splits may follow each other in one") {
  const auto finished = split_at({96, 80}, 2), begun = split_at({112, -104}, 1), other = split_at({112}, 3);
  const auto check = [](File& first, File& second, const std::string& expected) {
    const auto file = File::in_memory();
    std::istringstream lines(text_of(first) + text_of(second));
    import_text(lines, "text", *file);
    CHECK(text_of(*file) == expected);
  };
  for (File* first : {begun.get(), other.get()}) {
    const auto one_by_one = File::in_memory();
    merge_into(*first, *one_by_one);
    merge_into(*finished, *one_by_one);
    check(*first, *finished, text_of(*one_by_one));
    check(*finished, *first, text_of(*one_by_one));
  }
}

TEST_CASE("an export counts no part of a bucket as used") {
  const Folder folder;
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  merge_into(*split_at({96, 80}, 2), *file);
  export_file(*file, folder / "copy.kiln", {}, false);
  file->flush_usage();
  for (const Usage& each : file->usage()) CHECK_MESSAGE(each.uses == 0, each.key);
}

TEST_CASE("lines of a text may come in any order, those of a split too") {
  const auto begun = split_at({112, -96}, 1);
  std::istringstream lines(text_of(*begun));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  do {
    const auto into = split_at({104, -98}, 2);
    std::string text;
    for (const std::string& line : all) text += line + "\n";
    std::istringstream shuffled(text);
    import_text(shuffled, "text", *into);
    CHECK(into->records_under("a | ").size() == 4);
    CHECK(into->find_record("a | m<=96"));
  } while (std::ranges::next_permutation(all).found);
}

}  // namespace
}  // namespace kiln::store

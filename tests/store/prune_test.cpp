#include <algorithm>
#include <ctime>

#include "support.hpp"

namespace kiln::store {
namespace {

constexpr std::int64_t day = 86400;

/// Records and cubins named 0 to n-1, each cubin of 20 kB that do not compress to nothing.
void fill_rows(File& file, int rows) {
  for (int at = 0; at < rows; ++at) {
    const auto name = std::to_string(at);
    auto cubin = sample_cubin(name, 20000);
    std::uint32_t state = static_cast<std::uint32_t>(at) + 1;
    for (std::byte& each : cubin.image) each = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    file.put(sample_record("key" + name, 1000.0 + at), &cubin);
  }
}

TEST_CASE("look-ups are counted once a process for each row, and stay") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  fill_rows(*File::open(path, Access::read_write), 2);
  for (int process = 0; process < 3; ++process) {
    const auto file = File::open(path, Access::read_write);
    for (int time = 0; time < 5; ++time) {
      CHECK(file->find_record("key0"));
      CHECK(file->find_cubin(digest_named("1")));
      CHECK(!file->find_record("absent"));
      CHECK(file->find_record("key1", true));  // inspected, so not counted as a use
    }
  }
  const auto usage = File::open(path, Access::read_only)->usage();
  const auto uses = [&](const std::string& source, const std::string& key) {
    const auto found =
        std::ranges::find_if(usage, [&](const Usage& each) { return each.source == source && each.key == key; });
    return found == usage.end() ? -1 : found->uses;
  };
  CHECK(usage.size() == 4);
  CHECK(uses("record", "key0") == 3);
  CHECK(uses("record", "key1") == 0);
  CHECK(uses("cubin", manifest::to_hex(digest_named("0"))) == 0);
  CHECK(uses("cubin", manifest::to_hex(digest_named("1"))) == 3);
}

TEST_CASE("what has served nothing for longer than asked goes, and its count with it") {
  const auto file = File::in_memory();
  fill_rows(*file, 4);
  const std::int64_t now = std::time(nullptr);
  file->add_to_usage(
      {{"record", "key1", 1, now + 90 * day}, {"cubin", manifest::to_hex(digest_named("2")), 1, now + 90 * day}});
  PruneRule rule;
  rule.unused_seconds = 30 * day;
  rule.now = now + 100 * day;
  rule.dry_run = true;
  const auto would = file->prune(rule);
  CHECK(file->stats().records == 4);
  rule.dry_run = false;
  const auto report = file->prune(rule);
  CHECK(report.records == 3);
  CHECK(report.cubins == 3);
  CHECK(report.candidates == 6);
  CHECK(report.bytes > 3 * 20000);
  CHECK(would.bytes == report.bytes);
  CHECK(file->find_record("key1"));
  CHECK(file->find_cubin(digest_named("2")));
  CHECK(file->usage().size() == 2);
  rule.now = now - 3650 * day;  // a clock that jumped back makes nothing old
  CHECK(file->prune(rule).records == 0);
}

TEST_CASE("records and cubins go by choice") {
  const auto file = File::in_memory();
  fill_rows(*file, 4);
  PruneRule rule;
  rule.record = [](const Record& record) { return record.key == "key2"; };
  rule.cubin = [](const PackedCubin& cubin) { return cubin.key == digest_named("3"); };
  const auto report = file->prune(rule);
  CHECK(report.records == 1);
  CHECK(report.cubins == 1);
  CHECK(!file->find_record("key2"));
  CHECK(file->stats().choices == 9);
  CHECK(!file->find_cubin(digest_named("3")));
  CHECK(file->find_cubin(digest_named("2")));
}

TEST_CASE("for size, the record whose choice at the upper edge saves least goes first") {
  const auto file = File::in_memory();
  for (const auto& [key, edge_ns] : {std::pair("little", 950.0), {"most", 100.0}, {"some", 700.0}}) {
    auto record = sample_record(key);
    record.candidates.clear();
    record.baseline_ns = 1000;
    record.choices[0].cost_ns = 1;  // below the upper edge, where no default was timed, so it does not count
    record.choices[1].cost_ns = edge_ns;
    record.choices[2].cost_ns = 990;
    for (int filler = 0; filler < 20; ++filler) {  // several pages each
      record.choices.insert(record.choices.begin(), record.choices[0]);
      record.choices[0].config = std::string(500, 'x');
    }
    file->put(record, nullptr);
  }
  const auto used = [&] { return file->stats().file_bytes - file->stats().free_bytes; };
  PruneRule rule;
  rule.now = std::time(nullptr);
  rule.max_bytes = used() - 4096;
  CHECK(file->prune(rule).records == 1);
  CHECK(!file->find_record("little"));
  rule.max_bytes = used() - 4096;
  CHECK(file->prune(rule).records == 1);
  CHECK(!file->find_record("some"));
  CHECK(file->find_record("most"));
  CHECK(file->stats().choices == 23);
}

TEST_CASE(
    "a size is reached by losing candidates first, then the cubins of least use, and records only after the last cubin") {
  const auto file = File::in_memory();
  fill_rows(*file, 40);
  const std::int64_t now = std::time(nullptr);
  for (const std::string name : {"3", "17"})
    file->add_to_usage({{"cubin", manifest::to_hex(digest_named(name)), 50, now}});
  file->add_to_usage({{"record", "key5", 50, now}});
  PruneRule rule;
  rule.now = now;
  const auto used = [&] { return file->stats().file_bytes - file->stats().free_bytes; };
  rule.max_bytes = used() - 4096;
  auto report = file->prune(rule);
  CHECK(report.candidates > 0);
  CHECK(report.cubins == 0);
  rule.max_bytes = used() / 3;
  report = file->prune(rule);
  CHECK(used() <= *rule.max_bytes);
  CHECK(report.cubins > 20);
  CHECK(report.records == 0);
  CHECK(file->stats().candidates == 0);
  CHECK(file->find_cubin(digest_named("3")));
  CHECK(file->find_cubin(digest_named("17")));
  rule.max_bytes = 1;
  report = file->prune(rule);
  CHECK(file->stats().cubins == 0);
  CHECK(report.records == 40);
}

TEST_CASE("a file with a limit stays under it, and keeps what was just written") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  constexpr std::int64_t limit = 400000;
  const auto file = File::open(path, Access::read_write, limit);
  for (int at = 0; at < 60; ++at) {
    const auto name = std::to_string(at);
    auto cubin = sample_cubin(name, 20000);
    std::uint32_t state = static_cast<std::uint32_t>(at) + 1;
    for (std::byte& each : cubin.image) each = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    file->put(sample_record("key" + name, 1000.0 + at), &cubin);
    const auto stats = file->stats();
    REQUIRE(stats.file_bytes - stats.free_bytes <= limit);
    REQUIRE(file->find_cubin(cubin.key));
    REQUIRE(stats.records == at + 1);
  }
  CHECK(file->stats().cubins >= 10);
  CHECK(std::filesystem::file_size(path) < limit + 100000);
}

TEST_CASE("at its limit a process loses what it looked up, found present or wrote after what nobody asked for") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  constexpr std::int64_t limit = 400000;
  fill_rows(*File::open(path, Access::read_write), 12);
  const auto file = File::open(path, Access::read_write, limit);
  CHECK(file->find_cubin(digest_named("1")));
  CHECK(file->has_cubin(digest_named("2")));
  CHECK_FALSE(file->has_cubin(digest_named("absent")));
  const auto before = File::open(path, Access::read_write);  // another process, which asks more often, and later
  for (const char* name : {"6", "7", "8", "9", "10", "11"})
    before->add_to_usage({{"cubin", manifest::to_hex(digest_named(name)), 50, std::time(nullptr)}});
  for (int at = 100; at < 110; ++at) {
    auto cubin = sample_cubin(std::to_string(at), 20000);
    std::uint32_t state = static_cast<std::uint32_t>(at) + 1;
    for (std::byte& each : cubin.image) each = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    file->put_cubin(cubin);
  }
  CHECK(file->stats().cubins < 22);
  CHECK_FALSE(before->find_cubin(digest_named("3")));
  for (const char* name : {"1", "2", "100", "101", "109"}) CHECK_MESSAGE(before->find_cubin(digest_named(name)), name);
}

TEST_CASE("a cubin that is found present counts as one that served") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  fill_rows(*File::open(path, Access::read_write), 1);
  { CHECK(File::open(path, Access::read_write)->has_cubin(digest_named("0"))); }
  const auto usage = File::open(path, Access::read_only)->usage();
  const auto found = std::ranges::find_if(usage, [](const Usage& each) { return each.source == "cubin"; });
  REQUIRE(found != usage.end());
  CHECK(found->uses == 1);
}

TEST_CASE("compacting gives free pages back and keeps every row") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  const auto file = File::open(path, Access::read_write);
  fill_rows(*file, 20);
  const auto before = std::filesystem::file_size(path);
  for (int at = 0; at < 15; ++at) file->remove_record("key" + std::to_string(at));
  PruneRule rule;
  rule.cubin = [](const PackedCubin& cubin) { return cubin.key != digest_named("19"); };
  file->prune(rule);
  CHECK(std::filesystem::file_size(path) == before);
  file->compact();
  CHECK(std::filesystem::file_size(path) < before / 3);
  CHECK(file->stats().free_bytes == 0);
  CHECK(file->stats().records == 5);
  CHECK(file->find_cubin(digest_named("19")));
  CHECK(File::open(path, Access::read_only)->records().size() == 5);
}

TEST_CASE("bytes are told by op") {
  const auto file = File::in_memory();
  fill_rows(*file, 3);
  auto other = sample_cubin("kernel of Kiln's own");
  other.op = "";
  file->put_cubin(other);
  const auto ops = file->bytes_by_op();
  REQUIRE(ops.size() == 2);
  CHECK(ops[0].op == "");
  CHECK(ops[0].cubins == 1);
  CHECK(ops[1].op == "rms_norm");
  CHECK(ops[1].records == 3);
  CHECK(ops[1].cubins == 3);
  CHECK(ops[1].cubin_bytes > 3 * 19000);
}

}  // namespace
}  // namespace kiln::store

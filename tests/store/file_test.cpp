// One file: what is stored comes back, and what may not be stored is refused.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "store/custody.hpp"
#include "store/format.hpp"
#include "store/integrity.hpp"
#include "store/limits.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

TEST_CASE("a record and its cubin come back as they were put, in this and in the next opening") {
  const Folder folder;
  const auto record = sample_record("key");
  const auto cubin = sample_cubin("cubin");
  {
    const auto file = File::open(folder / "a.kiln", Access::read_write);
    file->put(record, &cubin);
    CHECK(same(file->find_record("key", true).value(), record));
    CHECK(file->find_record("key")->candidates.empty());
    CHECK(file->find_record("key")->choices.size() == 3);
  }
  for (const Access access : {Access::read_write, Access::read_only}) {
    const auto file = File::open(folder / "a.kiln", access);
    CHECK(same(file->find_record("key", true).value(), record));
    CHECK(same(file->find_cubin(cubin.key).value(), cubin));
    CHECK(!file->find_record("other"));
    CHECK(!file->find_cubin(digest_named("other")));
    CHECK(file->compilers() == std::vector<std::string>{"nvrtc 13.0"});
    const auto stats = file->stats();
    CHECK(stats.records == 1);
    CHECK(stats.choices == 3);
    CHECK(stats.candidates == 2);
    CHECK(stats.cubins == 1);
    CHECK(stats.cubin_image_bytes == 3000);
    CHECK(stats.file_bytes == static_cast<std::int64_t>(std::filesystem::file_size(folder / "a.kiln")));
    CHECK(file->counters().quarantined == 0);
  }
}

TEST_CASE("a put replaces the record, its choices and its candidates, and keeps a cubin that is there") {
  const auto file = File::in_memory();
  auto record = sample_record("key");
  auto cubin = sample_cubin("cubin");
  file->put(record, &cubin);
  record.choices[0].config = "threads=512 vector=8";
  record.choices.pop_back();
  record.candidates.pop_back();
  cubin.label = "another label";
  file->put(record, &cubin);
  CHECK(same(file->find_record("key", true).value(), record));
  CHECK(file->find_cubin(cubin.key)->label == "rms_norm cubin");
  CHECK(file->stats().choices == 2);
  CHECK(file->stats().candidates == 1);
  CHECK(file->remove_record("key"));
  CHECK(!file->remove_record("key"));
  CHECK(file->stats().choices == 0);
  CHECK(file->stats().candidates == 0);
}

TEST_CASE("a record's choices come back in their order, however many and of whatever role") {
  const auto file = File::in_memory();
  auto record = sample_record("many");
  record.choices.clear();
  for (int at = 0; at < 40; ++at) {
    const std::string sizes = "rows=" + std::to_string(8 * at + 1) + ".." + std::to_string(8 * at + 8);
    record.choices.push_back(
        sample_choice(at < 25 ? Role::fastest : Role::without_library, sizes, "vectorized", "threads=64", 100 + at));
  }
  file->put(record, nullptr);
  const auto found = file->find_record("many", true);
  REQUIRE(found);
  CHECK(same(*found, record));
  CHECK(found->at_edge().cost_ns == 124);  // the last choice of Role::fastest
  const auto listed = file->records();
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].choices.size() == 40);
}

TEST_CASE("records are listed newest first, and by op") {
  const auto file = File::in_memory();
  for (int at = 0; at < 3; ++at) {
    auto record = sample_record("key" + std::to_string(at));
    record.op = at == 1 ? "softmax" : "rms_norm";
    record.device_class = at == 1 ? "sm_80" : "sm_90";
    record.provenance.unix_seconds = 100 + at;
    file->put(record, nullptr);
  }
  const auto all = file->records();
  REQUIRE(all.size() == 3);
  CHECK(all[0].key == "key2");
  CHECK(all[2].key == "key0");
  CHECK(file->records("softmax").size() == 1);
  CHECK(file->records("rms_norm", true).front().candidates.size() == 2);
  CHECK(file->records("gemm").empty());
  CHECK(file->device_classes() == std::vector<std::string>{"sm_80", "sm_90"});
}

TEST_CASE("what could not be believed when read is refused when written, and nothing of that call is stored") {
  const auto file = File::in_memory();
  const auto cubin = sample_cubin("cubin");
  for (const double cost : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
    auto record = sample_record("key");
    record.choices[2].cost_ns = cost;
    CHECK(contains(refusal([&] { file->put(record, &cubin); }),
                   "bad_input: the record 'key' is not stored: a choice's cost_ns"));
    record = sample_record("key");
    record.baseline_ns = cost;
    CHECK(contains(refusal([&] { file->put(record, &cubin); }), "the record 'key' is not stored: baseline_ns"));
    record = sample_record("key");
    record.candidates[1].high_ns = cost;
    CHECK(contains(refusal([&] { file->put(record, &cubin); }), "high_ns"));
  }
  auto record = sample_record("key");
  record.choices[1].config = "\xff";
  CHECK(contains(refusal([&] { file->put(record, nullptr); }), "config is not UTF-8"));
  record = with_samples(sample_record("key"), -1);
  CHECK(contains(refusal([&] { file->put(record, nullptr); }), "samples is negative"));
  record = sample_record("key");
  std::erase_if(record.choices, [](const Choice& each) { return each.role == Role::fastest; });
  CHECK(contains(refusal([&] { file->put(record, nullptr); }), "no choice is the fastest"));
  record.choices.assign(max_choices + 1, sample_record("key").choices[0]);
  CHECK(contains(refusal([&] { file->put(record, nullptr); }), "more than 4096 choices"));
  CubinRow huge = sample_cubin("huge", 0);
  huge.image.resize((std::size_t{64} << 20) + 1);
  CHECK(contains(refusal([&] { file->put_cubin(huge); }), "the limit is 67108864"));
  CHECK(file->stats().records == 0);
  CHECK(file->stats().cubins == 0);
}

TEST_CASE("a candidate's reason may quote any bytes; it is made text") {
  const auto file = File::in_memory();
  auto record = sample_record("key");
  record.candidates[1].reason = "error at \xff\xfe";
  file->put(record, nullptr);
  CHECK(file->find_record("key", true)->candidates[1].reason == "error at ??");
}

TEST_CASE("extreme values keep every bit") {
  const auto file = File::in_memory();
  auto record = sample_record("key", 0.1);
  record.choices[0].low_ns = std::numeric_limits<double>::denorm_min();
  record.choices[0].high_ns = std::numeric_limits<double>::max();
  record.choices[1].cost_ns = record.baseline_ns = -0.0;
  record.choices[0].samples = std::numeric_limits<std::int64_t>::max();
  record.revision = std::numeric_limits<std::int64_t>::min();
  record.provenance.driver_version = std::numeric_limits<int>::min();
  file->put(record, nullptr);
  CHECK(same(file->find_record("key", true).value(), record));
  const auto empty = sample_cubin("empty", 0);
  file->put_cubin(empty);
  CHECK(same(file->find_cubin(empty.key).value(), empty));
}

TEST_CASE("launches add up over calls and do not overflow") {
  const auto file = File::in_memory();
  file->add_to_histogram({{"rms_norm", "rows=1", 2}, {"rms_norm", "rows=2", 1}});
  file->add_to_histogram({{"rms_norm", "rows=1", 3}, {"rms_norm", "rows=2", std::numeric_limits<std::int64_t>::max()}});
  const auto rows = file->histogram();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].problem == "rows=2");
  CHECK(rows[0].launches == std::numeric_limits<std::int64_t>::max());
  CHECK(rows[1].launches == 5);
}

TEST_CASE("a file is made for its user alone, in a folder made for its user alone") {
  const Folder folder;
  const auto path = folder / "deep" / "er" / "a.kiln";
  const mode_t before = umask(0);
  File::open(path, Access::read_write)->put(sample_record("key"), nullptr);
  umask(before);
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  REQUIRE(stat(path.parent_path().c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
  CHECK(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}) == 1);
}

TEST_CASE("eight threads write and read one file") {
  const Folder folder;
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&, thread] {
      for (int at = 0; at < 200; ++at) {
        const auto record = sample_record(std::to_string(thread) + "/" + std::to_string(at));
        file->put(record, nullptr);
        const auto found = file->find_record(record.key, true);
        if (!found || !same(*found, record)) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(file->stats().records == 1600);
}

TEST_CASE("writing to a file that is open for reading is refused") {
  const Folder folder;
  File::open(folder / "a.kiln", Access::read_write);
  const auto file = File::open(folder / "a.kiln", Access::read_only);
  CHECK(contains(refusal([&] { file->put(sample_record("key"), nullptr); }), "no_permission"));
}

TEST_CASE("the embedded schema is cache/schema.sql, and its numbers are those of the code") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  File::open(path, Access::read_write);
  const auto bytes = bytes_of(path);
  CHECK(bytes.substr(68, 4) == "KILN");
  CHECK(contains(std::string(schema_sql()), "PRAGMA application_id = 0x4b494c4e;"));
  CHECK(contains(std::string(schema_sql()), "PRAGMA user_version = " + std::to_string(schema_version) + ";"));
}

TEST_CASE("what is missing, no file or not to be read is named") {
  const Folder folder;
  CHECK(contains(refusal([&] { File::open(folder / "none.kiln", Access::read_only); }), "io: '"));
  CHECK(contains(refusal([&] { File::open(folder.path(), Access::read_only); }), "it is not a regular file"));
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(contains(refusal([&] { File::open(folder / "fifo", Access::read_only); }), "it is not a regular file"));
}

TEST_CASE("valid UTF-8 and nothing else is text") {
  const auto with_config = [](std::string_view config) {
    Choice choice;
    choice.config = config;
    return choice;
  };
  for (const std::string_view good :
       {"", "a", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(flaw_of(with_config(good)).empty());
  for (const std::string_view bad : {"\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\x80", "\xed\xa0\x80", "\xf0\x8f\x80\x80",
                                     "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe1\x80"})
    CHECK(flaw_of(with_config(bad)) == "config is not UTF-8");
}

}  // namespace
}  // namespace kiln::store

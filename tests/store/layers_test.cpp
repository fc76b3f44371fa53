#include "store/layers.hpp"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "store/custody.hpp"
#include "store/transfer.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

fs::path base_with(const Folder& folder, const std::string& name, const std::string& key, double cost_ns) {
  const auto file = File::open(folder / name, Access::read_write);
  const auto cubin = sample_cubin(key);
  file->put(sample_record(key, cost_ns), &cubin);
  return folder / name;
}

std::string only_warning(const Layers& layers) {
  REQUIRE(layers.warnings().size() == 1);
  return layers.warnings().front();
}

TEST_CASE("the overlay answers before the bases, and the bases in their order") {
  const Folder folder;
  const std::vector<fs::path> bases = {base_with(folder, "one.kiln", "both", 1),
                                       base_with(folder, "two.kiln", "both", 2)};
  File::open(bases[1], Access::read_write)->put(sample_record("second", 3), nullptr);
  Layers layers({.overlay = folder / "overlay.kiln", .bases = bases});
  CHECK(layers.warnings().empty());
  REQUIRE(layers.layers().size() == 3);
  CHECK(layers.find_record("both")->value.at_edge().cost_ns == 1);
  CHECK(layers.find_record("both")->layer == 1);
  CHECK(layers.find_record("second")->layer == 2);
  CHECK(!layers.find_record("none"));
  layers.overlay().put(sample_record("both", 9), nullptr);
  CHECK(layers.find_record("both")->layer == 0);
  CHECK(layers.records("rms_norm").size() == 4);
  CHECK(layers.records("rms_norm").front().layer == 0);
  CHECK(layers.find_cubin(digest_named("both"))->layer == 1);
  CHECK(layers.compilers() == std::vector<std::string>{"nvrtc 13.0"});
}

TEST_CASE("a file's records are kept until it changes, by this object or another") {
  const Folder folder;
  const auto file = File::open(folder / "file.kiln", Access::read_write);
  CHECK(file->kept_records("rms_norm")->empty());
  file->put(sample_record("one", 1), nullptr);
  const SharedRecords one = file->kept_records("rms_norm");
  REQUIRE(one->size() == 1);
  CHECK(one->front().candidates.empty());
  CHECK(file->kept_records("rms_norm") == one);
  CHECK(file->kept_records("gemm")->empty());

  const auto reader = File::open(folder / "file.kiln", Access::read_only);
  const SharedRecords read = reader->kept_records("rms_norm");
  CHECK(read->size() == 1);
  file->put(sample_record("two", 1), nullptr);
  CHECK(file->kept_records("rms_norm")->size() == 2);
  CHECK(reader->kept_records("rms_norm")->size() == 2);
  CHECK(read->size() == 1);  // what a caller holds stays as it was

  file->put(sample_record("two", 5), nullptr);
  CHECK(std::ranges::any_of(*reader->kept_records("rms_norm"),
                            [](const Record& each) { return each.at_edge().cost_ns == 5; }));
  CHECK(file->remove_record("two"));
  CHECK(reader->kept_records("rms_norm")->size() == 1);
  CHECK(file->kept_records("rms_norm")->size() == 1);

  fs::remove(folder / "file.kiln");
  File::open(folder / "file.kiln", Access::read_write)->put(sample_record("three", 1), nullptr);
  REQUIRE(file->kept_records("rms_norm")->size() == 1);  // an overlay follows its path
  CHECK(file->kept_records("rms_norm")->front().key == "three");
}

TEST_CASE("a base that others may write supplies records and no machine code") {
  const Folder folder;
  const std::vector<fs::path> bases = {base_with(folder, "base.kiln", "key", 1)};
  fs::permissions(bases[0], fs::perms::group_write, fs::perm_options::add);
  {
    Layers layers({.bases = bases});
    CHECK(layers.find_record("key"));
    CHECK(!layers.find_cubin(digest_named("key")));
    CHECK(layers.compilers().empty());
    CHECK(!layers.layers()[1].trusted_for_code);
    CHECK(contains(layers.layers()[1].trust, "can be written by others (mode 0620)"));
  }
  fs::permissions(bases[0], fs::perms::group_write, fs::perm_options::remove);
  CHECK(Layers({.bases = bases}).find_cubin(digest_named("key")));
  fs::permissions(folder.path(), fs::perms::others_write, fs::perm_options::add);
  Layers open_folder({.bases = bases});
  CHECK(!open_folder.find_cubin(digest_named("key")));
  CHECK(contains(open_folder.layers()[1].trust, "its folder"));
}

TEST_CASE("a base may be named by a symbolic link; what it leads to is judged") {
  const Folder folder;
  const std::vector<fs::path> bases = {folder / "link.kiln"};
  fs::create_symlink(base_with(folder, "base.kiln", "key", 1), bases[0]);
  Layers layers({.bases = bases});
  CHECK(layers.layers()[1].trusted_for_code);
  CHECK(layers.find_cubin(digest_named("key")));
}

TEST_CASE("a base that cannot be opened is left out and named, and the rest serve") {
  const Folder folder;
  const std::vector<fs::path> bases = {folder / "missing.kiln", base_with(folder, "base.kiln", "key", 1)};
  Layers layers({.bases = bases});
  CHECK(contains(only_warning(layers), "a base file is left out: '" + bases[0].string()));
  CHECK(layers.layers()[1].file == nullptr);
  CHECK(contains(layers.layers()[1].refused, "missing.kiln"));
  CHECK(layers.find_record("key")->layer == 2);
}

TEST_CASE("a base may be text: its records serve, and a line that does not hold refuses all of it") {
  const Folder folder;
  const fs::path good = folder / "good.jsonl", bad = folder / "bad.jsonl";
  {
    std::ofstream text(good);
    export_text(*File::open(base_with(folder, "base.kiln", "key", 1), Access::read_only), text, {});
  }
  write_bytes(bad, bytes_of(good) + "{}\n");
  Layers layers({.bases = {good, bad}});
  CHECK(layers.find_record("key")->layer == 1);
  CHECK(!layers.layers()[1].trusted_for_code);
  CHECK(contains(only_warning(layers), bad.string() + ":2: "));
  CHECK(layers.layers()[2].file == nullptr);
}

TEST_CASE("the warning of an overlay that cannot be read says that what it holds is not read") {
  const Folder folder;
  std::ofstream(folder / "foreign.kiln") << "no database at all";
  CHECK(contains(only_warning(Layers({.overlay = folder / "foreign.kiln"})),
                 "kept in memory only; what it holds is not read"));
}

TEST_CASE("no overlay path means memory, without a warning") {
  Layers layers(LayerSettings{});
  CHECK(layers.warnings().empty());
  layers.overlay().put(sample_record("key"), nullptr);
  CHECK(layers.find_record("key")->layer == 0);
}

/// SQLite adds 1 to it in each transaction that writes.
std::uint32_t writes_to(const fs::path& path) {
  const std::string bytes = bytes_of(path);
  REQUIRE(bytes.size() > 28);
  std::uint32_t count = 0;
  for (std::size_t at = 24; at < 28; ++at) count = count << 8 | static_cast<unsigned char>(bytes[at]);
  return count;
}

bool has(const fs::path& path, const std::string& key) {
  const auto file = File::open(path, Access::read_only);
  return file->find_record(key).has_value() && file->find_cubin(digest_named(key)).has_value();
}

TEST_CASE("rows for later are found at once, and written together in one transaction") {
  const Folder folder;
  const fs::path path = folder / "overlay.kiln";
  Layers layers({.overlay = path});
  layers.put_all({}, {});
  const std::uint32_t before = writes_to(path);
  const auto put = [&](int number) {
    const std::string key = "key" + std::to_string(number);
    const Record record = sample_record(key, number);
    const CubinRow cubin = sample_cubin(key);
    CHECK(layers.put_later({&record, 1}, {&cubin, 1}));
    CHECK(layers.find_record(key)->layer == 0);
    CHECK(layers.has_cubin(digest_named(key)));
    CHECK(same(layers.find_cubin(digest_named(key))->value, cubin));
  };
  for (int number = 1; number <= 50; ++number) put(number);
  CHECK(writes_to(path) == before);
  SUBCASE("when asked") {
    layers.write_queued();
    CHECK(writes_to(path) == before + 1);
    layers.write_queued();  // nothing is left
    CHECK(writes_to(path) == before + 1);
    put(51);
    layers.write_queued();
    CHECK(writes_to(path) == before + 2);
  }
  SUBCASE("before what is asked of the file") {
    CHECK(layers.keeps("key1"));
    CHECK(writes_to(path) == before + 1);
    put(51);
    CHECK(layers.not_kept().empty());
    CHECK(writes_to(path) == before + 2);
  }
  SUBCASE("before a later record of one of their keys, which replaces it") {
    const Record later = sample_record("key7", 700);
    layers.put_all({&later, 1}, {});
    CHECK(layers.find_record("key7")->value.at_edge().cost_ns == 700);
    CHECK(File::open(path, Access::read_only)->find_record("key7")->at_edge().cost_ns == 700);
  }
  SUBCASE("at the end") { const Layers ended(std::move(layers)); }
  for (int number = 1; number <= 50; ++number) CHECK(has(path, "key" + std::to_string(number)));
}

/// Another connection's lock on the file, against writes.
class Locked {
 public:
  explicit Locked(const fs::path& path) {
    REQUIRE(sqlite3_open(path.c_str(), &database_) == SQLITE_OK);
    REQUIRE(sqlite3_exec(database_, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
  }
  ~Locked() { sqlite3_close(database_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  sqlite3* database_ = nullptr;
};

TEST_CASE("rows for later that cannot be written are told once, stay in memory and are written by a later call") {
  const Folder folder;
  const fs::path path = folder / "overlay.kiln";
  File::open(path, Access::read_write);
  Layers layers({.overlay = path});
  layers.overlay().stop_waiting_when([] { return true; });
  int told = 0;
  layers.tell_news_to([&] { ++told; });
  sqlite3* other = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &other) == SQLITE_OK);
  REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
  const Record record = sample_record("key");
  const CubinRow cubin = sample_cubin("key");
  CHECK(layers.put_later({&record, 1}, {&cubin, 1}));
  CHECK(told == 0);
  layers.write_queued();
  CHECK(told == 1);
  CHECK(contains(only_warning(layers), "kept in this process's memory only"));
  CHECK(layers.find_record("key")->layer == 0);
  CHECK_FALSE(layers.keeps("key"));
  CHECK(contains(layers.not_kept(), path.string()));
  REQUIRE(sqlite3_close(other) == SQLITE_OK);
  layers.write_queued();
  CHECK(layers.warnings().empty());
  CHECK(layers.not_kept().empty());
  CHECK(has(path, "key"));
}

std::int64_t samples_of(const std::optional<Record>& record) { return record ? record->choices.front().samples : 0; }

/// Of the record in the overlay's file.
std::int64_t samples_in(const fs::path& path, const std::string& key) {
  return samples_of(File::open(path, Access::read_only)->find_record(key));
}

TEST_CASE("a row for later replaces no record that is as good, and none that this process put later") {
  const Folder folder;
  const fs::path path = folder / "overlay.kiln";
  Layers layers({.overlay = path});
  const Record fetched = with_samples(sample_record("key", 1), 20), worse = with_samples(sample_record("key", 2), 10),
               better = with_samples(sample_record("key", 3), 30);
  const auto put_later = [&] { layers.put_later({&fetched, 1}, {}); };
  SUBCASE("of another process, written meanwhile") {
    put_later();
    File::open(path, Access::read_write)->put(better, nullptr);
    layers.write_queued();
    CHECK(samples_in(path, "key") == 30);
    CHECK(samples_of(layers.find_record("key")->value) == 30);
  }
  SUBCASE("and replaces a worse one of another process") {
    put_later();
    File::open(path, Access::read_write)->put(worse, nullptr);
    layers.write_queued();
    CHECK(samples_in(path, "key") == 20);
  }
  SUBCASE("of this process, put before it") {
    layers.put_all({&better, 1}, {});
    put_later();
    layers.write_queued();
    CHECK(samples_in(path, "key") == 30);
    CHECK(layers.keeps("key"));
  }
  SUBCASE("of this process, put after it, better or not") {
    put_later();
    layers.put_all({&worse, 1}, {});
    CHECK(samples_of(layers.find_record("key")->value) == 10);
    layers.write_queued();
    CHECK(samples_in(path, "key") == 10);
  }
  SUBCASE("of this process, which the overlay has not taken") {
    File::open(path, Access::read_write);
    layers.overlay().stop_waiting_when([] { return true; });
    const Locked locked(path);
    layers.put_all({&better, 1}, {});
    put_later();
    CHECK(samples_of(layers.find_record("key")->value) == 30);
  }
  SUBCASE("unless the one there serves nothing") {
    layers.put_all({&better, 1}, {});
    layers.put_later({&fetched, 1}, {}, Replaces::any);
    layers.write_queued();
    CHECK(samples_in(path, "key") == 20);
  }
}

TEST_CASE("while rows for later wait for another process's lock, others are put and found, and warnings are read") {
  const Folder folder;
  const fs::path path = folder / "overlay.kiln";
  File::open(path, Access::read_write);
  Layers layers({.overlay = path});
  const Record first = sample_record("first"), second = sample_record("second");
  layers.put_later({&first, 1}, {});
  auto locked = std::make_optional<Locked>(path);
  std::thread writer([&] { layers.write_queued(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it waits 5 s
  const auto begun = std::chrono::steady_clock::now();
  layers.put_later({&second, 1}, {});
  CHECK(layers.find_record("first"));
  CHECK(layers.find_record("second"));
  CHECK(layers.warnings().empty());
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(2));
  locked.reset();
  writer.join();
  CHECK(layers.warnings().empty());
  CHECK(samples_in(path, "first") > 0);
  layers.write_queued();
  CHECK(samples_in(path, "second") > 0);
}

TEST_CASE("a write that may not wait leaves the rows for another call, and fails after 5 s of such calls") {
  const Folder folder;
  const fs::path path = folder / "overlay.kiln";
  File::open(path, Access::read_write);
  Layers layers({.overlay = path});
  const Record record = sample_record("key");
  layers.put_later({&record, 1}, {});
  auto locked = std::make_optional<Locked>(path);
  const auto begun = std::chrono::steady_clock::now();
  CHECK_FALSE(layers.write_queued(std::chrono::milliseconds(0)));
  CHECK_FALSE(layers.write_queued(std::chrono::milliseconds(10)));
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(2));
  CHECK(layers.warnings().empty());
  CHECK(layers.has_queued());
  SUBCASE("which then writes them") {
    locked.reset();
    CHECK(layers.write_queued(std::chrono::milliseconds(10)));
    CHECK_FALSE(layers.has_queued());
    CHECK(samples_in(path, "key") > 0);
  }
  SUBCASE("with a warning") {
    while (!layers.write_queued(std::chrono::milliseconds(10)))
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(std::chrono::steady_clock::now() - begun >= std::chrono::seconds(5));
    CHECK(contains(only_warning(layers), "kept in this process's memory only"));
    CHECK(layers.find_record("key"));
  }
}

TEST_CASE("rows for later are stored at once in an overlay in memory") {
  Layers layers(LayerSettings{});
  const Record record = sample_record("key");
  CHECK_FALSE(layers.put_later({&record, 1}, {}));
  CHECK(layers.overlay().find_record("key"));
}

TEST_CASE("a base of another user than root supplies no machine code, and an overlay of theirs is not used") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can give a file away");
    return;
  }
  const Folder folder;
  const auto path = base_with(folder, "base.kiln", "key", 1);
  REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
  const std::vector<fs::path> bases = {path};
  Layers layers({.overlay = path, .bases = bases});
  REQUIRE(layers.warnings().size() == 2);  // of the overlay and of the base
  for (const std::string& each : layers.warnings()) CHECK(contains(each, "belongs to user 65534"));
  CHECK(layers.find_record("key")->layer == 1);
  CHECK(!layers.find_cubin(digest_named("key")));
}

}  // namespace
}  // namespace kiln::store

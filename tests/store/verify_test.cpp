#include "store/verify.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "store/opening.hpp"
#include "store/tables.hpp"
#include "store/transfer.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

void fill_file(const fs::path& path) {
  const auto file = File::open(path, Access::read_write);
  for (int at = 0; at < 100; ++at) {
    const auto cubin = sample_cubin(std::to_string(at));
    file->put(sample_record("key" + std::to_string(at)), &cubin);
  }
  file->acquire_lease("key1", "a holder", 60);
  file->add_to_histogram({{"rms_norm", "rows=1 cols=64 dtype=bf16", 3}});
}

std::string flaws_of(const Verification& found) {
  std::string text;
  for (const RowFlaw& flaw : found.first) text += flaw.table + "|" + flaw.key + "|" + flaw.reason + "\n";
  return text;
}

TEST_CASE("a sound file is verified, counted, and left as it was") {
  const Folder folder;
  fill_file(folder / "a.kiln");
  const auto before = bytes_of(folder / "a.kiln");
  const Verification found = verify(folder / "a.kiln");
  CHECK_MESSAGE(found.is_sound(), flaws_of(found));
  CHECK(found.version == 3);
  const auto rows = [&](const std::string& table) {
    return std::ranges::find(found.tables, table, &TableCount::table)->rows;
  };
  CHECK(rows("record") == 100);
  CHECK(rows("choice") == 300);
  CHECK(rows("candidate") == 200);
  CHECK(rows("cubin") == 100);
  CHECK(rows("image") == 100);
  CHECK(rows("lease") == 1);
  CHECK(rows("usage") == 200);
  CHECK(std::ranges::any_of(found.notes, [](const std::string& note) { return contains(note, "not sealed"); }));
  CHECK(bytes_of(folder / "a.kiln") == before);
}

TEST_CASE("what does not hold is named with its table, its key and why") {
  const Folder folder;
  fill_file(folder / "sound.kiln");
  const auto flaws_after = [&](const std::string& sql) {
    const auto path = folder / "a.kiln";
    fs::copy_file(folder / "sound.kiln", path, fs::copy_options::overwrite_existing);
    run_sql(path, sql);
    const auto before = bytes_of(path);
    const Verification found = verify(path);
    CHECK(bytes_of(path) == before);
    return flaws_of(found);
  };
  const std::string mismatch = "its digest does not match its content\n";
  CHECK(flaws_after("UPDATE record SET baseline_ns = 1 WHERE key = 'key7'") == "record|key7|" + mismatch);
  CHECK(flaws_after("UPDATE choice SET cost_ns = 1 WHERE record = 8 AND position = 2") == "record|key7|" + mismatch);
  CHECK(flaws_after("DELETE FROM choice WHERE record = 8 AND position = 2") == "record|key7|" + mismatch);
  CHECK(flaws_after("UPDATE candidate SET verdict = 'ok' WHERE position = 1 AND record = 3") ==
        "candidate|key2 #1|" + mismatch);
  CHECK(flaws_after("UPDATE image SET frame = x'00' WHERE cubin = 1") ==
        "cubin|" + manifest::to_hex(digest_named("0")) + "|" + mismatch);
  CHECK(flaws_after("UPDATE usage SET uses = 99 WHERE key = 'key4'") == "usage|record key4|" + mismatch);
  CHECK(flaws_after("UPDATE lease SET pid = 1") == "lease|key1|" + mismatch);
  CHECK(flaws_after("UPDATE histogram SET launches = 4") == "histogram|rms_norm rows=1 cols=64 dtype=bf16|" + mismatch);
  CHECK(flaws_after("UPDATE meta SET value = 'kiln 9'") == "meta|created_by|" + mismatch);
  for (const std::string child : {"candidate", "choice"})
    CHECK(contains(flaws_after("DELETE FROM record WHERE key = 'key7'"), child + "||it belongs to no record\n"));
  CHECK(contains(flaws_after("DELETE FROM cubin WHERE id = 5"), "image|row 5|it belongs to no cubin\n"));
  CHECK(flaws_after("DELETE FROM usage") == "");
}

TEST_CASE("counts of use whose rows are gone, and cubins without a record of their op, are notes") {
  const Folder folder;
  fill_file(folder / "a.kiln");
  {
    const auto file = File::open(folder / "a.kiln", Access::read_write);
    file->remove_record("key3");
    auto other = sample_cubin("other");
    other.op = "softmax";
    file->put_cubin(other);
  }
  const Verification found = verify(folder / "a.kiln");
  CHECK(found.is_sound());
  const auto notes = [&](const std::string& words) { return std::ranges::count(found.notes, words); };
  CHECK(notes("1 counts of use are of rows that are gone") == 1);
  CHECK(notes("1 cubins are of ops of which it holds no record") == 1);
}

TEST_CASE("every flaw is counted, and as many are named as asked for") {
  const Folder folder;
  fill_file(folder / "a.kiln");
  run_sql(folder / "a.kiln", "UPDATE choice SET samples = 1");
  const Verification found = verify(folder / "a.kiln", 3);
  CHECK(found.flaws == 100);
  CHECK(found.first.size() == 3);
}

TEST_CASE("a sealed file that lost a row does not hold, also a candidate") {
  const Folder folder;
  fill_file(folder / "a.kiln");
  export_file(*File::open(folder / "a.kiln", Access::read_only), folder / "sealed.kiln", {}, false);
  CHECK(verify(folder / "sealed.kiln").is_sound());
  CHECK(verify(folder / "sealed.kiln").seal.manifest.size() == 3);
  run_sql(folder / "sealed.kiln", "DELETE FROM candidate WHERE record = 2 AND position = 1");
  const Verification found = verify(folder / "sealed.kiln");
  CHECK(contains(flaws_of(found), "manifest||its manifest states 200 candidate rows and it holds 199"));
}

TEST_CASE("counts below 0 do not hold, and are not read, though their digests match") {
  const Folder folder;
  fill_file(folder / "a.kiln");
  {
    Connection connection = open_existing(folder / "a.kiln", Access::read_write);
    add_to_histogram(connection, {"rms_norm", "rows=2", -50});
    add_to_usage(connection, {"launch", "hot", -5, 7});
  }
  CHECK(flaws_of(verify(folder / "a.kiln")) ==
        "usage|launch hot|uses is negative\nhistogram|rms_norm rows=2|launches is negative\n");
  const auto file = File::open(folder / "a.kiln", Access::read_write);
  CHECK(file->histogram().size() == 1);
  file->add_to_histogram({{"rms_norm", "rows=2", 3}});
  CHECK(file->histogram().size() == 2);
}

TEST_CASE("a record that contradicts its key does not hold, and is not served, though its digest matches") {
  const Folder folder;
  fill_file(folder / "a.kiln");
  const std::string key = "rms_norm@4 | rows=pow2:512 | dtype=bf16 | sm_90/mp132 | cold";
  {
    Connection connection = open_existing(folder / "a.kiln", Access::read_write);
    put_record(connection, sample_record(key));
  }
  const Verification found = verify(folder / "a.kiln");
  CHECK(flaws_of(found) == "record|" + key + "|key is not that of its op, revision, bucket, device class and regime\n");
  const auto file = File::open(folder / "a.kiln", Access::read_only);
  CHECK(file->records().size() == 100);
  CHECK_FALSE(file->find_record(key));
}

TEST_CASE("a file is verified while others write to it") {
  const Folder folder;
  fill_file(folder / "a.kiln");
  std::atomic<bool> is_done = false;
  std::string refused;
  std::thread writer([&] {
    const auto file = File::open(folder / "a.kiln", Access::read_write);
    while (!is_done && refused.empty()) refused = refusal([&] { file->put(sample_record("key1"), nullptr); });
  });
  for (int time = 0; time < 10; ++time) CHECK(refusal([&] { verify(folder / "a.kiln"); }) == "");
  is_done = true;
  writer.join();
  CHECK(refused == "");
}

TEST_CASE("what is no .kiln file is refused whole") {
  const Folder folder;
  write_bytes(folder / "a.kiln", "not a database");
  CHECK(contains(refusal([&] { verify(folder / "a.kiln"); }), "bad_file: "));
  fill_file(folder / "b.kiln");
  fs::resize_file(folder / "b.kiln", fs::file_size(folder / "b.kiln") - 4096);
  const auto refused = refusal([&] { verify(folder / "b.kiln"); });
  CHECK_MESSAGE(contains(refused, "bad_file: "), refused);
  CHECK_MESSAGE(contains(refused, "is damaged: "), refused);
}

TEST_CASE("wherever a byte is flipped, a file that is called sound gives the right rows") {
  const Folder folder;
  fill_file(folder / "sound.kiln");
  const std::string sound = bytes_of(folder / "sound.kiln");
  const auto path = folder / "a.kiln";
  int called_sound = 0, flawed = 0, refused = 0;
  for (std::size_t at = 0; at < sound.size(); at += 1 + sound.size() / 400) {
    std::string bytes = sound;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write_bytes(path, bytes);
    try {
      const Verification found = verify(path, 1);
      ++(found.is_sound() ? called_sound : flawed);
      if (!found.is_sound()) continue;
      const auto file = File::open(path, Access::read_only);
      CHECK(file->records().size() == 100);
      CHECK(file->cubins().size() == 100);
      CHECK(file->counters().quarantined == 0);
    } catch (const Error&) {
      ++refused;
    }
    REQUIRE(bytes_of(path) == bytes);
  }
  CHECK(flawed > called_sound);  // some bytes stand in free space
}

}  // namespace
}  // namespace kiln::store

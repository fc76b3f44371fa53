#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

TEST_CASE("fault 25: a cubin moved under another key is a miss") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  run_sql(path,
          "UPDATE cubin SET key = zeroblob(32) WHERE id = 1;"
          "CREATE TEMP TABLE k AS SELECT id, key FROM cubin; UPDATE cubin SET key = randomblob(32) WHERE id IN (2, 3);"
          "UPDATE cubin SET key = (SELECT key FROM k WHERE k.id = 5 - cubin.id) WHERE id IN (2, 3)");
  const auto file = File::open(path, Access::read_only);
  for (const std::string name : {"0", "1", "2"}) CHECK(!file->find_cubin(digest_named(name)));
  CHECK(file->counters().quarantined == 2);
  faults::tally(25, 3, "cubins under other keys");
}

TEST_CASE("fault 25: machine code moved to another cubin's row is a miss") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  {
    const auto file = File::open(path, Access::read_write);
    for (const std::string name : {"0", "11", "222"})
      file->put_cubin(sample_cubin(name));  // of one length, different inside
  }
  run_sql(path,
          "CREATE TEMP TABLE i AS SELECT * FROM image;"
          "UPDATE image SET frame = (SELECT frame FROM i WHERE i.cubin = 3 - image.cubin) WHERE cubin IN (1, 2);"
          "DELETE FROM image WHERE cubin = 3");
  const auto base = File::open(path, Access::read_only);
  for (const std::string name : {"0", "11", "222"}) CHECK(!base->find_cubin(digest_named(name)));
  CHECK(base->counters().quarantined == 3);
  const auto file = File::open(path, Access::read_write);
  CHECK(file->cubins().empty());
  CHECK(file->counters().quarantined == 3);
  CHECK(file->stats().cubins == 0);
  file->put_cubin(sample_cubin("0"));
  CHECK(file->find_cubin(digest_named("0")));
  faults::tally(25, 3, "images under other cubins");
}

TEST_CASE("fault 25: a record, its choices or a candidate moved under another key is a miss") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", 5);
  run_sql(
      path,
      "UPDATE record SET key = 'x' WHERE key = 'key0'; UPDATE record SET key = 'key0' WHERE key = 'key1';"
      "UPDATE record SET key = 'key1' WHERE key = 'x';"
      "UPDATE candidate SET position = 5 WHERE record = 3 AND position = 1;"
      "CREATE TEMP TABLE c AS SELECT * FROM choice WHERE record IN (4, 5); DELETE FROM choice WHERE record IN (4, 5);"
      "INSERT INTO choice SELECT 9 - record, position, role, sizes, implementation, config, cost_ns, low_ns, high_ns, "
      "samples, source_digest, compiler FROM c");
  const auto file = File::open(path, Access::read_only);
  CHECK(!file->find_record("key0"));
  CHECK(!file->find_record("key1"));
  CHECK(file->find_record("key2", true)->candidates.size() == 1);
  CHECK(!file->find_record("key3"));
  CHECK(!file->find_record("key4"));
  CHECK(file->counters().quarantined == 5);
  faults::tally(25, 5, "records, choices and candidates under other keys");
}

}  // namespace
}  // namespace kiln::store

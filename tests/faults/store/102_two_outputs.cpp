// Two commands on one name: between the look at a file and the rename that replaces it, nobody else changes it.
#include <unistd.h>

#include <array>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "kiln/error.hpp"
#include "store/holder.hpp"
#include "store/sqlite.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

const Selection nothing_lost{.must_lose_nothing = true};

std::set<std::string> keys_of(const fs::path& path) {
  std::set<std::string> keys;
  for (Record& record : File::open(path, Access::read_only)->records()) keys.insert(std::move(record.key));
  return keys;
}

/// Merges the files into `target`, which may be one of them. False when it is refused.
bool merges(const std::vector<fs::path>& from, const fs::path& target) {
  std::vector<std::unique_ptr<File>> files;
  std::vector<File*> pointers;
  for (const fs::path& each : from) pointers.push_back(files.emplace_back(File::open(each, Access::read_only)).get());
  try {
    merge_files(pointers, target, nothing_lost, true);
    return true;
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_input);
    return false;
  }
}

fs::path file_of(const fs::path& path, const std::string& name) {
  sample_file(path, 0);
  File::open(path, Access::read_write)->put(sample_record(name), nullptr);
  return path;
}

fs::path sealed(const fs::path& source, const fs::path& target) {
  export_file(*File::open(source, Access::read_only), target, {}, false);
  return target;
}

}  // namespace

TEST_CASE("fault 102: a record that is committed while a command replaces its file is not lost") {
  const Folder folder;
  const auto target = sealed(file_of(folder / "first.kiln", "first"), folder / "target.kiln");
  std::array<int, 2> begun{};
  REQUIRE(pipe(begun.data()) == 0);
  const pid_t writer = in_child([&] {
    const auto file = File::open(target, Access::read_write);
    file->write_all([&](Writer& rows) {
      rows.put(sample_record("second"));
      if (write(begun[1], "x", 1) != 1) _exit(98);
      usleep(300'000);
    });
    return true;
  });
  char told = 0;
  REQUIRE(read(begun[0], &told, 1) == 1);
  CHECK_FALSE(merges({target}, target));
  CHECK(exit_status(writer) == 0);
  CHECK(keys_of(target).size() == 2);
  close(begun[0]);
  close(begun[1]);
  faults::tally(102, 1, "commits beside a command that replaces their file");
}

TEST_CASE("fault 102: of commands that replace one file at once, none loses what another has added") {
  constexpr int rounds = 4, commands = 4;
  for (int round = 0; round < rounds; ++round) {
    const Folder folder;
    const auto target = sealed(file_of(folder / "first.kiln", "first"), folder / "target.kiln");
    std::vector<fs::path> sources;
    std::vector<pid_t> children;
    for (int i = 0; i < commands; ++i)
      sources.push_back(file_of(folder / ("source-" + std::to_string(i) + ".kiln"), "added " + std::to_string(i)));
    for (const fs::path& source : sources)
      children.push_back(in_child([&] { return merges({target, source}, target); }));
    std::vector<bool> merged;
    for (const pid_t child : children) merged.push_back(exit_status(child) == 0);
    const std::set<std::string> keys = keys_of(target);
    for (int i = 0; i < commands; ++i)
      if (merged[static_cast<std::size_t>(i)]) CHECK(keys.contains(sample_record("added " + std::to_string(i)).key));
    faults::tally(102, commands, "commands that replace one file at once");
  }
}

TEST_CASE("fault 102: a write to a file that was replaced meanwhile says so") {
  const Folder folder;
  const auto path = file_of(folder / "written.kiln", "one"), other = file_of(folder / "other.kiln", "two");
  Connection connection = Connection::open(path.string(), OpenMode::read_write);
  CHECK(connection.number("SELECT count(*) FROM record") == 1);
  fs::rename(other, path);
  std::string said;
  try {
    Transaction writing(connection, Transaction::Kind::write);
    connection.execute("DELETE FROM record");
    writing.commit();
  } catch (const SqliteFailure& failure) {
    said = failure.in_words();
  }
  CHECK(said == "another process replaced or removed it meanwhile; run this again");
  CHECK(keys_of(path).size() == 1);
  faults::tally(102, 1, "writes to a file that was replaced");
}

TEST_CASE("fault 13: holders of leases differ where processes have one number and one layout of memory") {
  const std::string here = unique_holder();
  CHECK(unique_holder() != here);
  const auto random = [](const std::string& holder) { return holder.substr(holder.rfind('/')); };
  CHECK(exit_status(in_child([&] { return random(unique_holder()) != random(here); })) == 0);
  faults::tally(13, 2, "holders that look alike");
}

}  // namespace kiln::store

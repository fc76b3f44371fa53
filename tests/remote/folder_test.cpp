#include <sys/wait.h>

#include <map>
#include <random>
#include <thread>

#include "kiln/error.hpp"
#include "remote/client.hpp"
#include "remote/open.hpp"
#include "support.hpp"

namespace kiln::remote {
namespace {

using store::RemoteFailure;
using Kind = RemoteFailure::Kind;

/// The kind with which the work fails; nothing where it does not.
template <class Work>
std::optional<Kind> failure_of(Work&& work) {
  try {
    work();
  } catch (const RemoteFailure& failure) {
    return failure.kind();
  }
  return std::nullopt;
}

std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder, const std::string& extension) {
  std::vector<std::filesystem::path> found;
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder))
    if (each.path().extension() == extension) found.push_back(each.path());
  return found;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST_CASE("a folder returns the value that was put, by its key and in its space's list") {
  const store::Folder at;
  Folder folder(at.path());
  const store::Record record = numbered_record(1);
  const store::RemotePlace place = store::place_of(record);
  CHECK(!folder.get(place, soon()));
  CHECK(folder.list(place.space, soon()).empty());
  CHECK(folder.put(place, value_of(record), std::nullopt, soon()));
  CHECK(folder.get(place, soon()) == value_of(record));
  CHECK(folder.list(place.space, soon()) == std::vector{value_of(record)});
  CHECK(folder.spaces(soon()) == std::vector{place.space});
  CHECK(!folder.get({place.space, "another"}, soon()));
  CHECK(files_below(at.path(), ".tmp").empty());
  CHECK(files_below(at.path(), ".put").empty());
}

TEST_CASE("a put that has not seen the present value changes nothing") {
  const store::Folder at;
  Folder folder(at.path());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  const std::string first = value_of(numbered_record(1, 10)), second = value_of(numbered_record(1, 20));
  CHECK(folder.put(place, first, std::nullopt, soon()));
  CHECK(!folder.put(place, second, std::nullopt, soon()));
  CHECK(!folder.put(place, second, value_of(numbered_record(1, 30)), soon()));
  CHECK(folder.get(place, soon()) == first);
  CHECK(folder.put(place, second, first, soon()));
  CHECK(folder.get(place, soon()) == second);
}

TEST_CASE("machine code is found by its key") {
  const store::Folder at;
  Folder folder(at.path());
  const std::string key(64, 'a');
  CHECK(!folder.get_code(key, soon()));
  folder.put_code(key, value_of(numbered_record(1)), soon());
  CHECK(folder.get_code(key, soon()) == value_of(numbered_record(1)));
  CHECK(folder.spaces(soon()).empty());
}

TEST_CASE("a broken file is returned once, is set aside, and gives way to the next value") {
  const store::Folder at;
  Folder folder(at.path());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  const std::string value = value_of(numbered_record(1));
  for (const std::string& broken : {std::string(), value.substr(0, 40), value.substr(0, value.size() - 1), value + "x",
                                    std::string(5 << 20, 'k'), std::string("no value")}) {
    CAPTURE(broken.size());
    REQUIRE(folder.put(place, value, std::nullopt, soon()));
    const auto file = files_below(at.path(), ".row").front();
    write_file(file, broken);
    const auto first = folder.get(place, soon());
    REQUIRE(first);
    CHECK(!open_row(place, *first, {}).row);
    CHECK(!std::filesystem::exists(file));
    CHECK(files_below(at.path(), ".broken").size() == 1);
    CHECK(!folder.get(place, soon()));
    CHECK(folder.put(place, value, std::nullopt, soon()));
    CHECK(folder.get(place, soon()) == value);
    REQUIRE(std::filesystem::remove(file));
  }
}

TEST_CASE("a client counts a file that was cut, and warns of it") {
  const store::Folder at;
  Folder folder(at.path());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  REQUIRE(folder.put(place, value_of(numbered_record(1)), std::nullopt, soon()));
  write_file(files_below(at.path(), ".row").front(), "cut");
  std::atomic<int> warnings = 0;
  Client client(std::make_unique<Folder>(at.path()), {.warn = [&](const std::string&) { ++warnings; }});
  CHECK(client.list(place.space, std::chrono::seconds(10)).empty());
  CHECK(client.wait_until(soon()));
  CHECK(client.counters().errors == 1);
  CHECK(warnings == 1);
}

TEST_CASE("what is no regular file in a value's place is a miss that waits for nothing, and gives way to a value") {
  const store::Folder at;
  Folder folder(at.path());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  REQUIRE(folder.put(place, value_of(numbered_record(1)), std::nullopt, soon()));
  const auto file = files_below(at.path(), ".row").front();
  const auto elsewhere = at / "elsewhere";
  std::filesystem::rename(file, elsewhere);
  SUBCASE("a pipe") { REQUIRE(mkfifo(file.c_str(), 0666) == 0); }
  SUBCASE("a link") { std::filesystem::create_symlink(elsewhere, file); }
  SUBCASE("a folder") { std::filesystem::create_directory(file); }
  const auto first = folder.get(place, soon());
  CHECK((first && !open_row(place, *first, {}).row));
  CHECK(!folder.get(place, soon()));
  CHECK(folder.put(place, value_of(numbered_record(1)), std::nullopt, soon()));
  CHECK(folder.get(place, soon()) == value_of(numbered_record(1)));
}

TEST_CASE("a folder that is not there, or is a file, is told and never created") {
  const store::Folder at;
  const store::RemotePlace place = store::place_of(numbered_record(1));
  write_file(at / "file", "text");
  for (const char* name : {"missing", "file"}) {
    Folder folder(at / name);
    CHECK(failure_of([&] { (void)folder.get(place, soon()); }) == Kind::unreachable);
    CHECK(failure_of([&] { folder.put(place, "value", std::nullopt, soon()); }) == Kind::unreachable);
    CHECK(failure_of([&] { folder.claim(place, "token", std::chrono::seconds(30), soon()); }) == Kind::unreachable);
    CHECK(failure_of([&] { (void)folder.spaces(soon()); }) == Kind::unreachable);
    CHECK_FALSE(std::filesystem::is_directory(at / name));
  }
}

TEST_CASE("each file call that fails ends in a failure of its kind, or a miss, and leaves the old value") {
  const store::Folder at;
  Folder sound(at.path()), folder(at.path(), failing_calls());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  const std::string first = value_of(numbered_record(1, 10)), second = value_of(numbered_record(1, 20));
  REQUIRE(sound.put(place, first, std::nullopt, soon()));
  const std::map<int, Kind> kinds{{EIO, Kind::unreachable}, {ESTALE, Kind::unreachable}, {EDQUOT, Kind::full},
                                  {ENOSPC, Kind::full},     {EACCES, Kind::refused},     {EROFS, Kind::read_only},
                                  {ETIMEDOUT, Kind::slow}};
  for (const auto& each : kinds) {
    const int error = each.first;
    const Kind kind = each.second;
    for (const Call call :
         {Call::open, Call::read, Call::write, Call::fsync, Call::close, Call::fstat, Call::rename, Call::link}) {
      CAPTURE(error);
      CAPTURE(static_cast<int>(call));
      Failing::begin(call, error);
      const auto failed = failure_of([&] { folder.put(place, second, first, soon()); });
      Failing::end();
      if (error != ESTALE) CHECK(failed == kind);
      CHECK(sound.get(place, soon()) == first);
    }
    for (const Call call : {Call::open, Call::read, Call::fstat}) {
      CAPTURE(error);
      Failing::begin(call, error);
      std::optional<std::string> found;
      const auto failed = failure_of([&] { found = folder.get(place, soon()); });
      Failing::end();
      CHECK(!found);
      if (error != ESTALE) CHECK(failed == kind);
    }
    for (const Call call : {Call::opendir, Call::readdir}) {
      Failing::begin(call, error);
      const auto failed = failure_of([&] { (void)folder.list(place.space, soon()); });
      Failing::end();
      if (error != ESTALE) CHECK(failed == kind);
    }
  }
  CHECK(files_below(at.path(), ".put").empty());
  CHECK(files_below(at.path(), ".tmp").empty());
}

TEST_CASE("a stale name is looked up anew") {
  const store::Folder at;
  Folder folder(at.path(), failing_calls());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  REQUIRE(folder.put(place, value_of(numbered_record(1)), std::nullopt, soon()));
  for (const Call call : {Call::open, Call::read, Call::fstat}) {
    Failing::begin(call, ESTALE, 1);
    CHECK(folder.get(place, soon()) == value_of(numbered_record(1)));
    Failing::end();
  }
}

TEST_CASE("an operation past its deadline fails as slow") {
  const store::Folder at;
  Folder folder(at.path());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  const auto past = std::chrono::steady_clock::now();
  CHECK(failure_of([&] { (void)folder.get(place, past); }) == Kind::slow);
  CHECK(failure_of([&] { folder.put(place, "value", std::nullopt, past); }) == Kind::slow);
  CHECK(failure_of([&] { folder.claim(place, "token", std::chrono::seconds(30), past); }) == Kind::slow);
}

TEST_CASE("one of several holders has a claim, until it releases it or its term ends by the server's clock") {
  const store::Folder at;
  Folder folder(at.path());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  const std::chrono::seconds term(30);
  CHECK(folder.claim(place, "a", term, soon()));
  CHECK(folder.claim(place, "a", term, soon()));
  CHECK_FALSE(folder.claim(place, "b", term, soon()));
  CHECK_FALSE(folder.renew(place, "b", term, soon()));
  folder.release(place, "b", soon());
  CHECK_FALSE(folder.claim(place, "b", term, soon()));
  folder.release(place, "a", soon());
  CHECK(folder.claim(place, "b", term, soon()));

  const auto file = files_below(at.path(), ".claim").front();
  const auto back = [&](std::chrono::seconds by) {
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - by);
  };
  back(term - std::chrono::seconds(5));
  CHECK_FALSE(folder.claim(place, "c", term, soon()));
  CHECK(folder.renew(place, "b", term, soon()));
  back(term + std::chrono::seconds(1));
  CHECK(folder.renew(place, "b", term, soon()));  // late, and nobody took it
  CHECK_FALSE(folder.claim(place, "c", term, soon()));
  back(term + std::chrono::seconds(1));
  CHECK(folder.claim(place, "c", term, soon()));
  CHECK_FALSE(folder.renew(place, "b", term, soon()));
  CHECK(files_below(at.path(), ".tmp").empty());
}

TEST_CASE("a claim whose content was lost ends with its finder's term") {
  const store::Folder at;
  Folder folder(at.path());
  const store::RemotePlace place = store::place_of(numbered_record(1));
  REQUIRE(folder.claim(place, "a", std::chrono::seconds(30), soon()));
  write_file(files_below(at.path(), ".claim").front(), "");
  CHECK_FALSE(folder.claim(place, "b", std::chrono::seconds(30), soon()));
  CHECK(folder.claim(place, "b", std::chrono::seconds(0), soon()));
}

TEST_CASE("of many threads one has a free claim, and one an expired one") {
  const store::Folder at;
  const store::RemotePlace place = store::place_of(numbered_record(1));
  for (const bool is_expired : {false, true}) {
    if (is_expired)
      std::filesystem::last_write_time(files_below(at.path(), ".claim").front(),
                                       std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    std::atomic<int> have = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        Folder folder(at.path());
        if (folder.claim(place, std::to_string(i) + (is_expired ? "b" : "a"), std::chrono::seconds(30), soon())) ++have;
      });
    threads.clear();
    CHECK(have == 1);
  }
}

TEST_CASE("writers that are killed at any moment leave a whole value, and others go on") {
  const store::Folder at;
  const store::RemotePlace place = store::place_of(numbered_record(1));
  std::minstd_rand random(7);
  Folder folder(at.path());
  for (int round = 0; round < 60; ++round) {
    const pid_t writer = fork();
    REQUIRE(writer >= 0);
    if (writer == 0) {
      Folder own(at.path());
      for (int i = 0;; ++i) {
        try {
          const auto present = own.get(place, soon());
          own.put(place, value_of(numbered_record(1, i + 1)), present, soon());
        } catch (const RemoteFailure&) {
          _exit(1);
        }
      }
    }
    usleep(std::uniform_int_distribution<useconds_t>(0, 3000)(random));
    kill(writer, SIGKILL);
    int status = 0;
    waitpid(writer, &status, 0);
    CHECK(WIFSIGNALED(status));
    if (const auto value = folder.get(place, soon())) CHECK(open_row(place, *value, {}).row);
    for (const auto& claim : files_below(at.path(), ".put"))  // as if its term had passed
      std::filesystem::last_write_time(claim, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  CHECK(files_below(at.path(), ".broken").empty());
  CHECK(folder.put(place, value_of(numbered_record(1, 1'000'000)), folder.get(place, soon()), soon()));
}

TEST_CASE("writers at once never replace a better value by a worse one") {
  const store::Folder at;
  const store::RemotePlace place = store::place_of(numbered_record(1));
  std::atomic<int> worse = 0;
  std::vector<std::jthread> threads;
  for (int writer = 0; writer < 4; ++writer)
    threads.emplace_back([&, writer] {
      Folder folder(at.path());
      std::minstd_rand random(static_cast<unsigned>(writer) + 1);
      std::int64_t least = 0;
      for (int i = 0; i < 60; ++i) {
        const auto present = folder.get(place, soon());
        const std::int64_t samples = present ? open_row(place, *present, {}).row->record.choices[0].samples : 0;
        if (samples < least) ++worse;
        const auto mine = static_cast<std::int64_t>(random() % 1000);
        if (mine <= samples) continue;
        if (folder.put(place, value_of(numbered_record(1, mine)), present, soon())) least = mine;
      }
    });
  threads.clear();
  CHECK(worse == 0);
}

TEST_CASE("an address that can never work is refused") {
  for (const char* wrong : {"", "shared", "./shared", "s3://bucket", "http://host/path", "redis:host", "://"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS((void)open(wrong), Error);
  }
  CHECK(open("/nfs/kiln")->name() == "the folder /nfs/kiln");
  try {
    (void)open("s3://user:secret@host");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_input);
    CHECK(std::string(error.what()).find("secret") == std::string::npos);
  }
}

}  // namespace
}  // namespace kiln::remote

// Failures of the machine under SQLite: the messages say what failed and what to do.
#include <fcntl.h>
#include <sys/resource.h>

#include "faults/sanitizer.hpp"
#include "store/opening.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

/// Lowers the limit of open files so that this process can open no more.
void take_descriptors() {
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(next);
  const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool says_too_many(const std::string& said) {
  return contains(said, "io: ") && contains(said, "too many files are open") && contains(said, "ulimit -n");
}

}  // namespace

// UndefinedBehaviorSanitizer opens a pipe to check an object's type.
TEST_CASE("too many open files are told as such, of a file and of its journal" *
          doctest::skip(faults::address_sanitizer)) {
  const Folder folder;
  const auto path = folder / "a.kiln";
  File::open(path, Access::read_write);
  CHECK(exit_status(in_child([&] {
          const auto file = File::open(path, Access::read_write);
          take_descriptors();
          return says_too_many(refusal([&] { file->put(sample_record("key"), nullptr); })) &&
                 says_too_many(refusal([&] { File::open(path, Access::read_only); }));
        })) == 0);
}

TEST_CASE("a failure of SQLite says what was found and what to do") {
  const auto said = [](int code, int system_error) {
    const Error error = to_error("/a.kiln", "written", SqliteFailure(code, "words of SQLite", system_error));
    return std::string(to_string(error.kind())) + ": " + error.what();
  };
  CHECK(said(SQLITE_FULL, 0) ==
        "io: '/a.kiln' cannot be written: the disk is full, or this user's share of it; free some space there");
  CHECK(contains(said(SQLITE_IOERR, EDQUOT), "io: '/a.kiln' cannot be written: the disk is full"));
  CHECK(contains(said(SQLITE_CANTOPEN, ENOSPC), "io: '/a.kiln' cannot be written: the disk is full"));
  CHECK(contains(said(SQLITE_CANTOPEN, ENFILE), "io: '/a.kiln' cannot be written: too many files are open"));
  CHECK(contains(said(SQLITE_IOERR, EFBIG), "File too large; raise the limit of a file's size (ulimit -f)"));
  CHECK(
      contains(said(SQLITE_READONLY, 0), "no_permission: '/a.kiln' cannot be written: words of SQLite; let this user"));
  CHECK(contains(said(SQLITE_CANTOPEN, EACCES),
                 "no_permission: '/a.kiln' cannot be written: words of SQLite: Permission"));
  CHECK(contains(said(SQLITE_READONLY_DIRECTORY, 0), "its folder does not let this user make the journal"));
  CHECK(contains(said(SQLITE_IOERR, EIO), "io: '/a.kiln' cannot be written: words of SQLite: Input/output error"));
  CHECK(
      contains(said(SQLITE_BUSY, 0),
               "words of SQLite by another process or another copy of Kiln in this one; try again when that is done"));
}

}  // namespace kiln::store

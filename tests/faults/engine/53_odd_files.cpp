// Files of text that are no files, or that never end: refused by name, in bounded memory.
#include <sys/stat.h>

#include "faults/engine/fixture.hpp"
#include "faults/sanitizer.hpp"

namespace kiln::faults {
namespace {

class OddFiles {
 public:
  OddFiles() {
    fs::create_symlink(fs::path(KILN_SOURCE_DIR) / "cache" / "h100.jsonl", folder_ / "good.jsonl");
    for (const char* end : {"jsonl", "toml", "trace"}) {
      REQUIRE(mkfifo(path("pipe", end).c_str(), 0600) == 0);
      fs::create_symlink("/dev/zero", path("device", end));
      fs::create_directory(path("folder", end));
      write(path("long", end), "");
      fs::resize_file(path("long", end), std::uintmax_t{16} << 30);  // one line of zeros, a hole in the file
    }
  }
  [[nodiscard]] fs::path path(const std::string& name, const std::string& end) const {
    return folder_ / (name + "." + end).c_str();
  }
  /// Under a bound on memory that no file that is read whole would keep, and on time.
  [[nodiscard]] Outcome command(const std::string& words) const {
    const std::string bounds = address_sanitizer ? "" : "ulimit -v 1500000; ";
    return shell(bounds + "timeout 60 '" KILN_COMMAND "' " + words + globals_of(words));
  }

 private:
  [[nodiscard]] std::string globals_of(const std::string& words) const {
    for (const char* alone : {"cache diff", "cache ls /", "cache stats /", "ops"})
      if (words.starts_with(alone)) return own_ops();
    const bool is_overlay_alone = words.starts_with("cache import") || words.starts_with("cache merge");
    return is_overlay_alone ? own_overlay(folder_) : globals(folder_);
  }

  TemporaryFolder folder_;
};

struct Reader {
  const char* words;  // with the file as @
  const char* end;    // of the file's name
  int status = 2;
};

constexpr Reader readers[] = {{"cache import @", "jsonl"},    {"cache merge @ -o @.kiln", "jsonl"},
                              {"cache diff @ @", "jsonl"},    {"cache ls @", "jsonl"},
                              {"cache stats @", "jsonl"},     {"cache ls --base @", "jsonl", 4},
                              {"prewarm @", "toml"},          {"coverage @", "toml"},
                              {"replay @ --dry-run", "trace"}};

std::string filled(std::string words, const fs::path& path) {
  for (std::size_t at; (at = words.find('@')) != std::string::npos;) words.replace(at, 1, path.string());
  return words;
}

}  // namespace

TEST_CASE("fault 53: a text that is a pipe, a device, a folder or one endless line is refused by name") {
  const OddFiles files;
  std::int64_t cases = 0;
  for (const Reader& reader : readers)
    for (const auto& [name, said] : {std::pair{"pipe", "is a pipe"}, std::pair{"device", "is a device"},
                                     std::pair{"folder", "is a folder"}, std::pair{"long", "has more than"}}) {
      const fs::path path = files.path(name, reader.end);
      const Outcome outcome = files.command(filled(reader.words, path));
      CAPTURE(reader.words);
      CAPTURE(outcome.output);
      CHECK(outcome.status == reader.status);
      CHECK(contains(outcome.output, path.string()));
      CHECK(contains(outcome.output, said));
      ++cases;
    }
  tally(53, cases, "texts that are no files, or one endless line");
}

TEST_CASE("fault 53: a line of JSON that would take far more time or memory than its length is refused") {
  const OddFiles files;
  std::string fields, values, nested(1 << 20, '[');
  for (int i = 0; i < 300000; ++i) fields += (i == 0 ? "{\"k" : ",\"k") + std::to_string(i) + "\":1";
  for (int i = 0; i < 2000000; ++i) values += i == 0 ? "{\"choices\":[1" : ",1";
  const std::pair<std::string, const char*> lines[] = {
      {fields + "}", "bad.jsonl:1: an object has more than 64 fields"},
      {values + "]}", "bad.jsonl:1: more than 1048576 values"},
      {nested, "bad.jsonl:1: more than 3 objects or arrays stand inside each other"}};
  for (const auto& [line, said] : lines) {
    write(files.path("bad", "jsonl"), line + "\n");
    const Outcome outcome = files.command("cache ls " + files.path("bad", "jsonl").string());
    CHECK_MESSAGE(outcome.status == 2, outcome.output);
    CHECK_MESSAGE(contains(outcome.output, said), outcome.output);
  }
  tally(53, std::ssize(lines), "lines that are small and take much");
}

TEST_CASE("fault 53: an endless line on the standard input is refused") {
  const OddFiles files;
  const Outcome outcome = shell("timeout 60 '" KILN_COMMAND "' replay - --dry-run </dev/zero");
  CHECK_MESSAGE(outcome.status == 2, outcome.output);
  CHECK_MESSAGE(contains(outcome.output, "standard input:1: the line has more than"), outcome.output);
  tally(53, 1, "standard inputs that never end");
}

TEST_CASE("fault 53: a pipe or a device among the files of an op is refused by name, and nothing waits for it") {
  const OddFiles files;
  for (const char* name : {"op.toml", "plain.toml", "scale.cuh"})
    for (const char* odd : {"pipe", "device"}) {
      const TemporaryFolder folder;
      const CopiedOp op(folder);
      const fs::path path = op.root() / "scale" / name;
      fs::remove(path);
      fs::create_symlink(files.path(odd, "toml"), path);
      const Outcome outcome = files.command("ops scale --templates " + op.root().string());
      CAPTURE(outcome.output);
      CHECK(outcome.status == 2);
      CHECK(contains(outcome.output, path.string()));
      CHECK(contains(outcome.output, "expected a regular file"));
    }
  tally(53, 6, "files of an op that are no files");
}

TEST_CASE("fault 53: a link to a regular file of records is read") {
  const OddFiles files;
  const Outcome outcome = files.command("cache ls " + files.path("good", "jsonl").string());
  CHECK_MESSAGE(outcome.status == 0, outcome.output);
}

}  // namespace kiln::faults

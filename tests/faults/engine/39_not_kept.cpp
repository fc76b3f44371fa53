// An overlay that cannot be used or written: the result is used, and each command says what was not kept.
#include <unistd.h>

#include <algorithm>

#include "faults/engine/fixture.hpp"
#include "faults/engine/running.hpp"
#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"
#include "store/sqlite.hpp"
#include "store/support.hpp"

namespace kiln::faults {
namespace {

constexpr const char* tune_words = "tune scale rows=32 cols=128 dtype=f32";

/// A way in which an overlay keeps nothing: words of the shell before the command, its options, and what it must say.
struct Cause {
  std::string name, before, options, said;
};

/// A folder with one overlay for each cause.
class Spoilt {
 public:
  Spoilt() {
    write(folder_ / "workload.toml",
          "[[workload]]\nop = \"scale\"\naxes = { rows = [32], cols = 128 }\ntypes = { dtype = [\"f32\"] }\n");
    write(folder_ / "stream.trace", "scale rows=32 cols=128 dtype=f32\n");
    tuned_overlay(folder_, "given.kiln");
    fs::create_directory(folder_ / "disk");
    fs::permissions(tuned_overlay(folder_, "mode.kiln"), fs::perms::others_write, fs::perm_options::add);
    fs::create_symlink(folder_ / "given.kiln", folder_ / "link.kiln");
    store::run_sql(tuned_overlay(folder_, "newer.kiln"), "PRAGMA user_version = 99");
    write(folder_ / "foreign.kiln", std::string(4096, 'x'));
  }
  [[nodiscard]] std::vector<Cause> causes() const {
    const auto overlay = [&](const char* name) { return "--overlay " + (folder_ / name).string(); };
    std::vector<Cause> all = {
        {"no home", "env -u HOME -u KILN_CACHE -u XDG_CACHE_HOME ", "", "HOME"},
        {"wrong mode", "", overlay("mode.kiln"), "can be written by others"},
        {"a symbolic link", "", overlay("link.kiln"), "symbolic link"},
        {"a newer format", "", overlay("newer.kiln"), "use a newer Kiln"},
        {"a foreign file", "", overlay("foreign.kiln"), "not a .kiln file"},
    };
    const std::string disk = (folder_ / "disk").string();
    const std::string mounted = "unshare -rm sh -c 'mount -t tmpfs -o size=64k,mode=700 none " + disk +
                                " && { cat /dev/zero >" + disk + "/filler 2>/dev/null; exec \"$@\"; }' sh ";
    if (shell(mounted + "true").status == 0)
      all.push_back({"a full disk", mounted, "--overlay " + disk + "/overlay.kiln", "full"});
    return all;
  }
  [[nodiscard]] std::string path(const char* name) const { return (folder_ / name).string(); }

 private:
  TemporaryFolder folder_;
};

Outcome under(const Cause& cause, const std::string& words) {
  const bool takes_ops = !words.starts_with("cache") || words.starts_with("cache prune");
  return shell(cause.before + "'" KILN_COMMAND "' " + words + " " + cause.options + (takes_ops ? own_ops() : ""));
}

/// Exit status 4, one line that says what was not kept and why, and none of `claims`.
void check_says_not_kept(const Cause& cause, const Outcome& outcome, std::initializer_list<const char*> claims) {
  CAPTURE(cause.name);
  CAPTURE(outcome.output);
  CHECK(outcome.status == 4);
  CHECK(contains(outcome.output, cause.said));
  CHECK((contains(outcome.output, "the overlay does not keep ") || contains(outcome.output, "cannot be made")));
  for (const char* claim : claims) CHECK(!contains(outcome.output, claim));
}

}  // namespace

TEST_CASE("fault 39: a tune whose overlay keeps nothing shows its result, says so and exits 4") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const Spoilt spoilt;
  const auto causes = spoilt.causes();
  for (const Cause& cause : causes) {
    const Outcome tuned = under(cause, tune_words);
    check_says_not_kept(cause, tuned, {"tuned now"});
    CHECK_MESSAGE(contains(tuned.output, "threads="), tuned.output);
    const Outcome json = under(cause, std::string(tune_words) + " --json -q");
    check_says_not_kept(cause, json, {"\"kept\":true"});
    CHECK_MESSAGE(contains(json.output, "\"kept\":false"), json.output);
    CHECK_MESSAGE(contains(json.output, "{\"error\":"), json.output);
  }
  tally(39, 2 * static_cast<std::int64_t>(causes.size()), "tunes that nothing keeps");
}

TEST_CASE("fault 39: a pre-warm, a run and a replay whose overlay keeps nothing say so and exit 4") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const Spoilt spoilt;
  const auto causes = spoilt.causes();
  for (const Cause& cause : causes) {
    const Outcome warmed = under(cause, "prewarm " + spoilt.path("workload.toml"));
    check_says_not_kept(cause, warmed, {"tuned now", "\nkept in ", "is kept"});
    const bool known_before = cause.name != "a full disk";  // which is met at the first write
    CHECK_MESSAGE(contains(warmed.output, "nothing was begun") == known_before, warmed.output);
    CHECK_MESSAGE(contains(warmed.output, "[1/") != known_before, warmed.output);
    const Outcome ran = under(cause, "run scale rows=32 cols=128 dtype=f32");
    check_says_not_kept(cause, ran, {});
    CHECK_MESSAGE(contains(ran.output, "right; largest error"), ran.output);
    check_says_not_kept(cause, under(cause, "replay " + spoilt.path("stream.trace")), {});
  }
  tally(39, 3 * static_cast<std::int64_t>(causes.size()), "pre-warms, runs and replays that nothing keeps");
}

TEST_CASE("fault 39: a tune of several buckets whose overlay keeps nothing begins none and exits 4") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const Spoilt spoilt;
  const auto causes = spoilt.causes();
  for (const Cause& cause : causes) {
    const Outcome tuned = under(cause, "tune scale rows=32,64 cols=128 dtype=f32");
    check_says_not_kept(cause, tuned, {"tuned now"});
    const bool known_before = cause.name != "a full disk";  // which is met at the first write
    CHECK_MESSAGE(contains(tuned.output, "nothing was begun") == known_before, tuned.output);
    CHECK_MESSAGE(contains(tuned.output, "[1/2]") != known_before, tuned.output);
  }
  tally(39, static_cast<std::int64_t>(causes.size()), "tunes of several buckets that nothing keeps");
}

TEST_CASE("fault 39: an import or a merge into an overlay that keeps nothing adds nothing and says so") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const Spoilt spoilt;
  const auto causes = spoilt.causes();
  for (const Cause& cause : causes)
    for (const char* command : {"cache import ", "cache merge "})
      check_says_not_kept(cause, under(cause, command + spoilt.path("given.kiln")), {"records added"});
  tally(39, 2 * static_cast<std::int64_t>(causes.size()), "imports that nothing keeps");
}

TEST_CASE("fault 39: an overlay that cannot be used is neither pruned nor compacted, which exits 4") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const Spoilt spoilt;
  std::int64_t cases = 0;
  for (const Cause& cause : spoilt.causes())
    for (const char* command : {"cache prune --op scale", "cache compact"}) {
      if (cause.name == "a full disk") continue;  // there is no file
      const Outcome outcome = under(cause, command);
      CAPTURE(cause.name);
      CAPTURE(outcome.output);
      CHECK(outcome.status == 4);
      CHECK(contains(outcome.output, cause.said));
      ++cases;
    }
  tally(39, cases, "prunes of an overlay that cannot be used");
}

TEST_CASE("fault 39: while another process holds the overlay's lock, a tune says that it was not kept") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  const fs::path given = folder / "given.kiln";
  fs::copy_file(overlay, given);
  const std::size_t before = records_of(overlay).size();
  {
    store::Connection holder = store::Connection::open(overlay.native(), store::OpenMode::read_write);
    const store::Transaction held(holder, store::Transaction::Kind::write);
    const Cause cause{"the lock is held", "", "--overlay " + overlay.string(), "locked"};
    check_says_not_kept(cause, under(cause, tune_words), {"tuned now"});
    const Outcome imported = under(cause, "cache import " + given.string());
    CHECK_MESSAGE(imported.status == 4, imported.output);
    CHECK(!contains(imported.output, "records added"));
  }
  CHECK(records_of(overlay).size() == before);
  tally(39, 2, "commands beside a lock that is held");
}

TEST_CASE("fault 39: an overlay that is emptied, truncated or deleted in the middle of a tune is noticed at its end") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  struct Change {
    const char* name;
    void (*spoil)(const fs::path& overlay);
  };
  const Change changes[] = {
      {"emptied", [](const fs::path& overlay) { fs::resize_file(overlay, 0); }},
      {"truncated", [](const fs::path& overlay) { fs::resize_file(overlay, fs::file_size(overlay) / 2); }},
      {"deleted", [](const fs::path& overlay) { fs::remove(overlay); }},
  };
  for (const Change& change : changes) {
    const TemporaryFolder folder;
    Running command("tune scale rows=16,32,64,128,256 cols=128 dtype=f32 --json" + globals(folder) + " 2>&1");
    REQUIRE(command.wait_for(R"("event":"finished")"));
    REQUIRE(command.wait_for(R"("event":"candidate")"));
    change.spoil(folder / "overlay.kiln");
    const int status = command.status();
    CAPTURE(change.name);
    CAPTURE(command.said());
    CHECK(status == 4);
    CHECK(contains(command.said(), "\"kept\":false"));
    CHECK(contains(command.said(), "the overlay does not keep "));
  }
  tally(39, 3, "overlays that are spoilt in the middle of a tune");
}

TEST_CASE("fault 39: an engine says once why its overlay keeps nothing, and serves") {
  if (address_sanitizer) return skip(slow_under_sanitizer);
  const Spoilt spoilt;
  const Machine machine;
  for (const char* name : {"mode.kiln", "link.kiln", "newer.kiln", "foreign.kiln"}) {
    const Engine engine(e2e::options(spoilt.path(name)));
    const ScaleCall call(engine, 32, 128);
    CHECK_NOTHROW(call.launch(machine.stream()));
    CHECK(call.launch(machine.stream()) == Origin::hot);
    const auto said = engine.warnings();
    CHECK(std::count_if(said.begin(), said.end(), [&](const std::string& each) {
            return contains(each, name) && contains(each, "memory");
          }) == 1);
  }
  tally(39, 4, "engines whose overlay keeps nothing");
}

}  // namespace kiln::faults

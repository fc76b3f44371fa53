// kiln cache merge, diff, verify, stats and show, over files that no device tuned.
#include "cli/candidate_plot.hpp"
#include "cli/units.hpp"
#include "command.hpp"
#include "sample_op.hpp"
#include "store/key_files.hpp"
#include "tuned_files.hpp"
#include "tuned_rows.hpp"

using namespace kiln;
using namespace kiln::testing;
using store::Access;
using store::File;

namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void write(const std::string& path, const std::vector<TunedRows>& rows) {
  const auto file = File::open(path, Access::read_write);
  for (const TunedRows& each : rows) put(*file, each);
}

store::TriedCandidate candidate(int threads, double cost_ns) {
  store::TriedCandidate result;
  result.implementation = "block_row";
  result.config = "threads=" + std::to_string(threads);
  result.cost_ns = cost_ns;
  result.low_ns = cost_ns * 0.9;
  result.high_ns = cost_ns * 1.1;
  result.samples = 10;
  return result;
}

store::Record record_of(const std::string& config) {
  store::Record record;
  record.choices.emplace_back();
  record.choices[0].implementation = "block_row";
  record.choices[0].config = config;
  return record;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("sizes and durations are read with their units") {
  CHECK(cli::parse_bytes("4096B", "size") == 4096);
  CHECK(cli::parse_bytes("500MB", "size") == 500'000'000);
  CHECK(cli::parse_bytes("1.5 GB", "size") == 1'500'000'000);
  CHECK(cli::parse_bytes("2MiB", "size") == 2 << 20);
  CHECK(cli::parse_seconds("90d", "age") == 90 * 86400);
  CHECK(cli::parse_seconds("12h", "age") == 43200);
  for (const char* bad : {"", "5", "MB", "-1MB", "1 000", "nan", "inf", "1e99GB", "99999999999GB", "5mb"})
    CHECK_MESSAGE(contains(message_of([&] { cli::parse_bytes(bad, "size"); }), "size is "), bad);
  for (const char* bad : {"90", "1y", "d", "-5d"})
    CHECK_MESSAGE(contains(message_of([&] { cli::parse_seconds(bad, "age"); }), "expected a number and its unit"), bad);
}

TEST_CASE("an export past the file-size limit is an error, and leaves nothing") {
  const Command command;
  const std::string a = command.path("a.kiln"), out = command.path("out.jsonl");
  write(a, {tuned({"rows=64", "cols=64"}), tuned({"rows=128", "cols=64"})});
  check_refused(command.run("cache export --text " + a + " -o " + out, "ulimit -f 1; "), 4, "cannot be written");
  CHECK(!std::filesystem::exists(out));
  CHECK(!std::filesystem::exists(out + ".new"));
}

TEST_CASE("a merge takes .kiln and text, in any order to the same bytes, and says where they differ") {
  const Command command;
  const std::string a = command.path("a.kiln"), b = command.path("b.kiln"), text = command.path("c.jsonl");
  TunedRows slower = tuned({"rows=64", "cols=64"}, h200, 2000);
  slower.record.choices[0].samples = 7;
  write(a, {tuned({"rows=64", "cols=64"}), tuned({"rows=128", "cols=64"})});
  write(b, {slower, tuned({"rows=256", "cols=64"})});
  REQUIRE(command.run("cache export --text " + b + " -o " + text).status == 0);
  const std::string one = command.path("one.kiln"), two = command.path("two.kiln");
  const Ran merged = command.run("--json cache merge " + a + " " + b + " " + text + " -o " + one);
  CHECK_MESSAGE(merged.status == 0, merged.errors);
  CHECK(contains(merged.output, "\"records\":3,\"conflicts\":1,"));
  CHECK(command.run("cache merge " + text + " " + b + " " + a + " " + b + " -o " + two).status == 0);
  CHECK(bytes_of(one) == bytes_of(two));
  CHECK(File::open(one, Access::read_only)->find_record(slower.record.key)->at_edge().cost_ns == 1000);
  check_refused(command.run("cache merge " + a + " -o " + one), 2,
                "one.kiln' exists and 1 of its 3 records would be lost");
  check_refused(command.run("cache merge " + a + " -o " + command.path("x.jsonl")), 2, "its name ends in .kiln");
  CHECK(command.run("cache merge " + one + " " + a + " -o " + one).status == 0);
  CHECK(bytes_of(one) == bytes_of(two));
  CHECK(contains(command.run("cache merge " + one).output, "3 records added"));
  CHECK(contains(command.run("cache ls").output, "overlay.kiln: 3 records"));
}

TEST_CASE("verify can require the signature of a trusted key") {
  const Command command;
  const store::Folder folder;
  const std::string a = command.path("a.kiln");
  write(a, {tuned({"rows=64", "cols=64"})});
  const auto keys = store::make_keys(folder, "release");
  const std::string none = command.path("none");
  std::filesystem::create_directories(none);
  const auto verified = [&](const std::string& trusted) {
    return command.run("cache verify " + a + " --require-signature --trusted-keys " + trusted);
  };
  const std::string lacking = "no signature of a trusted key holds, and --require-signature asks for one\n";
  CHECK(verified((folder / "keys").string()).status == 1);
  REQUIRE(command.run("cache sign " + a + " --key " + keys.secret.string()).status == 0);
  const Ran good = verified((folder / "keys").string());
  CHECK_MESSAGE(good.status == 0, good.output);
  CHECK_FALSE(contains(good.output, lacking));
  const Ran unknown = verified(none);
  CHECK(unknown.status == 1);
  CHECK(contains(unknown.output, lacking));
  CHECK(command.run("cache verify " + a + " --trusted-keys " + none).status == 0);
  std::filesystem::create_directories(folder / "keys/revoked");
  std::filesystem::copy_file(keys.open, folder / "keys/revoked/release.pem");
  CHECK(verified((folder / "keys").string()).status == 1);
}

TEST_CASE("rows that do not hold are left behind by a merge, and named by verify") {
  const Command command;
  const std::string a = command.path("a.kiln");
  write(a, {tuned({"rows=64", "cols=64"}), tuned({"rows=128", "cols=64"})});
  std::string bytes = bytes_of(a);
  const std::size_t at = bytes.find("exhaustive");
  REQUIRE(at != std::string::npos);
  bytes[at] = 'E';
  std::ofstream(a, std::ios::binary) << bytes;
  const Ran verified = command.run("cache verify " + a);
  CHECK(verified.status == 1);
  CHECK(contains(verified.output, ": 1 flaw\n"));
  CHECK(contains(verified.output, "its digest does not match its content"));
  CHECK(contains(command.run("--json cache verify " + a).output, "\"sound\":false"));
  CHECK(bytes_of(a) == bytes);
  const Ran merged = command.run("cache merge " + a + " -o " + command.path("b.kiln"));
  CHECK(contains(merged.output, ": 1 record, "));
  CHECK(contains(merged.errors, "1 row of " + a + " did not hold and was left behind"));
  for (const std::string& to : {"-o " + command.path("c.kiln"), std::string("--text")}) {
    const Ran exported = command.run("cache export " + a + " " + to);
    CHECK(exported.status == 0);
    CHECK(contains(exported.errors, "1 row of " + a + " did not hold and was left behind"));
  }
  const Ran sound = command.run("cache verify " + command.path("b.kiln"));
  CHECK(sound.status == 0);
  CHECK(contains(sound.output, "seal    holds"));
}

TEST_CASE("rows that do not hold are named by each command that lists or looks up records") {
  const Command command;
  const std::string a = tuned_file(command, "a.kiln", true), problem = "rms_norm rows=512 cols=4096 dtype=bf16";
  std::string bytes = bytes_of(a);
  const std::size_t at = bytes.find("exhaustive");
  REQUIRE(at != std::string::npos);
  bytes[at] = 'E';
  std::ofstream(a, std::ios::binary) << bytes;
  const std::string base = " --device-class H200 --overlay '' --base " + a, workload = workload_of(command, "512");
  const std::string note = "kiln: 1 row of " + a + " does not hold and counts as absent; kiln cache verify " + a;
  for (const std::string& words :
       {"cache ls " + a, "cache stats " + a, "cache show rms_norm --file " + a, "cache diff " + a + " " + a,
        "coverage " + workload + base, "explain " + problem + base,
        "replay --dry-run " + command.path("t.trace", problem + "\n") + base,
        "report -o " + command.path("page.html") + base}) {
    CAPTURE(words);
    const Ran ran = command.run(words), quiet = command.run("-q " + words);
    CHECK_MESSAGE(contains(ran.errors, note), ran.errors);
    CHECK_MESSAGE(!contains(quiet.errors, "does not hold"), quiet.errors);
  }
  CHECK(contains(command.run("coverage " + workload + base).output, "its record is damaged"));
  CHECK(contains(command.run("--json coverage " + workload + base).output, "\"flawed_rows\":1"));
  CHECK(contains(command.run("--json cache diff " + a + " " + a).output, "\"flawed_rows\":2"));
  CHECK(contains(command.run("--json cache stats " + a).output, "\"quarantined\":1"));
  const std::string overlay = command.path("overlay.kiln");
  std::filesystem::copy_file(a, overlay);
  CHECK(contains(command.run("cache ls").errors, "1 row of " + overlay + " does not hold and counts as absent"));
  CHECK(contains(command.run("cache stats").output, "rows set aside earlier"));
}

TEST_CASE("verify refuses what is no file of its own") {
  const Command command;
  check_refused(command.run("cache verify " + command.path("none.kiln")), 2, "does not exist");
  check_refused(command.run("cache verify " + command.path("foreign.kiln", "something else altogether, and long")), 4,
                "foreign.kiln");
}

TEST_CASE("verify reads text, and names the first line that is no record") {
  const Command command;
  const std::string a = command.path("a.kiln"), text = command.path("a.jsonl");
  write(a, {tuned({"rows=64", "cols=64"}), tuned({"rows=128", "cols=64"})});
  REQUIRE(command.run("cache export " + a + " --text -o " + text).status == 0);
  const Ran sound = command.run("cache verify " + text);
  CAPTURE(sound.output);
  CHECK(sound.status == 0);
  CHECK(contains(sound.output, "a.jsonl: sound\n"));
  CHECK(contains(sound.output, "records 2"));
  CHECK(contains(sound.output, "none: text has no seal and no signature"));
  CHECK(contains(command.run("--json cache verify " + text).output,
                 "\"sound\":true,\"version\":null,\"rows\":{\"records\":2"));
  CHECK(command.run("cache verify " + text + " --require-signature").status == 1);
  REQUIRE(std::system(("sed -i '2s/\"cost_ns\":/\"cost\":/' " + text).c_str()) == 0);
  const Ran wrong = command.run("cache verify " + text);
  CHECK(wrong.status == 4);
  CHECK_MESSAGE(contains(wrong.errors, "a.jsonl:2: "), wrong.errors);
}

TEST_CASE("an overlay of the environment that is refused is not listed as one without records") {
  const Command command;
  const std::string link = command.path("overlay.kiln");
  std::filesystem::create_symlink(command.path("elsewhere.kiln"), link);
  for (const char* which : {"ls", "stats"}) {
    const Ran ran = command.run(std::string("cache ") + which);
    CHECK_MESSAGE(contains(ran.errors, "it is a symbolic link"), ran.errors);
    CHECK_MESSAGE(ran.output.empty(), ran.output);
  }
}

TEST_CASE("an overlay that is named and cannot be read is an error of each command that only reads") {
  const Command command;
  const std::string workload = workload_of(command, "512"),
                    trace = command.path("t.trace", "rms_norm rows=1 cols=64\n");
  const std::string page = command.path("page.html"), foreign = command.path("j.kiln", "{\"key\":\"no database\"}\n");
  const std::string base = tuned_file(command, "base.kiln", true);
  (void)command.path("overlay.kiln", "of KILN_CACHE, and no database");
  for (const std::string& words :
       {"report -o " + page, "coverage --device-class H200 " + workload,
        "replay --dry-run --device-class H200 " + trace,
        std::string("explain --device-class H200 rms_norm rows=1 cols=64"), std::string("workload --from-histogram"),
        std::string("cache ls"), std::string("cache stats"), std::string("cache show rms_norm"),
        std::string("cache export --text")}) {
    CAPTURE(words);
    for (const std::string& bases : {std::string(), " --base " + base}) {
      if (words.starts_with("cache export") && !bases.empty()) continue;
      const Ran named = command.run(words + " --overlay " + foreign + bases);
      check_refused(named, 4, "the overlay cannot be used, and nothing that it holds is read: '" + foreign + "'");
      CHECK(named.output.empty());
      check_refused(command.run("-q " + words + bases), 4, "nothing that it holds is read");
    }
  }
  CHECK_FALSE(std::filesystem::exists(page));
}

TEST_CASE("text of records under another name is refused by its reader, with the name that it needs") {
  const Command command;
  const std::string a = tuned_file(command, "a.kiln", false), text = command.path("x.txt");
  REQUIRE(command.run("cache export " + a + " --text -o " + text).status == 0);
  for (const std::string& words : {"cache ls " + text, "cache merge " + text, "cache diff " + a + " " + text,
                                   "cache ls --base " + text, "cache verify " + text})
    check_refused(command.run(words), 4,
                  "x.txt' is text of records, and a file is read as such when its name ends in .jsonl; rename it");
}

TEST_CASE("an export of an overlay in memory says that it holds nothing") {
  const Command command;
  for (const char* words : {"cache export --text --overlay ''", "cache export --overlay '' -o out.kiln"})
    check_refused(command.run(words), 2, "the overlay is in memory, as its empty path asks, and holds no record");
}

TEST_CASE("an import reads each file before it takes the first") {
  const Command command;
  const std::string good = tuned_file(command, "good.kiln", true), cut = command.path("cut.kiln");
  std::filesystem::copy_file(good, cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 4096);
  check_refused(command.run("cache import " + good + " " + command.path("missing.kiln")), 2, "missing.kiln");
  check_refused(command.run("cache import " + good + " " + cut), 4, "cut.kiln");
  check_refused(command.run("cache import " + good + " " + command.path("bad.jsonl", "{}\n")), 2, "bad.jsonl:1");
  CHECK(command.run("cache ls").output.find("1 record") == std::string::npos);
  CHECK(contains(command.run("cache import " + good).output, "1 record added"));
}

TEST_CASE("an overlay is not made under the name of text, which no base could be read from") {
  const Command command;
  const std::string text = command.path("mine.jsonl"), base = tuned_file(command, "base.kiln", true);
  check_refused(command.run("cache import " + base + " --overlay " + text), 2,
                "mine.jsonl does not exist, and would be a .kiln file under the name of text; name a file that ends in "
                ".kiln");
  CHECK_FALSE(std::filesystem::exists(text));
}

TEST_CASE("a file to sign that does not exist is a bad input, and an op that no file has is no push") {
  const Command command;
  const std::string key = command.path("key.pem", "none"), store = command.path("store");
  std::filesystem::create_directories(store);
  check_refused(command.run("cache sign " + command.path("none.kiln") + " --key " + key), 2,
                "none.kiln does not exist");
  const std::string to = " --remote " + store;
  check_refused(command.run("cache push --op rmsnorm" + to), 2, "there is no op 'rmsnorm' (did you mean 'rms_norm'?)");
  check_refused(command.run("cache pull --op rmsnorm" + to), 2, "there is no op 'rmsnorm' (did you mean 'rms_norm'?)");
  CHECK(command.run("cache pull --op rms_norm" + to).status == 0);
}

TEST_CASE("diff puts the worst ratio first, and fails only when asked to") {
  const Command command;
  const std::string a = command.path("a.kiln"), b = command.path("b.kiln");
  write(a, {tuned({"rows=64", "cols=64"}), tuned({"rows=128", "cols=64"}), tuned({"rows=256", "cols=64"}),
            tuned({"rows=512", "cols=64"})});
  TunedRows newer = tuned({"rows=256", "cols=64"}, h200, 3000);
  newer.record.provenance.driver_version = 13010;
  write(b, {tuned({"rows=64", "cols=64"}), tuned({"rows=128", "cols=64"}, h200, 500), newer,
            tuned({"rows=1024", "cols=64"})});
  const Ran ran = command.run("cache diff " + a + " " + b);
  CHECK(ran.status == 0);
  const std::string& text = ran.output;
  CHECK(contains(text, "1 gained, 1 lost, 2 changed, 1 the same; B takes 1.14x of A's time"));
  CHECK(contains(text, "driver 13000 -> 13010 (1 record)"));
  CHECK(text.find("rows=256 ") < text.find("rows=128 "));
  CHECK(text.find("3.00x") < text.find("0.50x"));
  CHECK_FALSE(contains(text, "rows=64 "));
  CHECK(text.find("records for sm_90/") == 0);  // once for all rows
  CHECK_FALSE(contains(text, "device class"));
  CHECK(contains(command.run("cache diff --all " + a + " " + b).output, "within the intervals"));
  CHECK(command.run("cache diff --exit-code " + a + " " + b).status == 1);
  CHECK(command.run("cache diff --exit-code " + a + " " + a).status == 0);
  const auto json = lines_of(command.run("--json cache diff " + a + " " + b).output);
  REQUIRE(json.size() == 5);
  CHECK(contains(json[0], "\"change\":\"changed\""));
  CHECK(contains(json[0], "\"cost_ratio\":3.0"));
  CHECK(contains(json[4], "{\"event\":\"summary\",\"gained\":1,\"lost\":1,\"changed\":2,\"same\":1,"));
}

TEST_CASE("stats tell bytes by op, what served, and misses by reason") {
  const Command command;
  const std::string path = command.path("a.kiln");
  write(path, {tuned({"rows=64", "cols=64"})});
  {
    const auto file = File::open(path, Access::read_write);
    CHECK(file->find_record(tuned({"rows=64", "cols=64"}).record.key));
    file->add_to_usage({{"launch", "overlay", 1200, 1}, {"miss", "no record", 3, 1}});
  }
  const std::string text = command.run("cache stats " + path).output;
  CHECK(contains(text, "rms_norm"));
  CHECK(contains(text, "(Kiln's own)"));
  CHECK(contains(text, "launches from        overlay"));
  CHECK(contains(text, "1,200"));
  CHECK(contains(text, "misses               no record"));
  CHECK(contains(text, "processes served by  1 record"));
  const std::string json = command.run("--json cache stats " + path).output;
  CHECK(contains(json, "\"launches\":{\"overlay\":1200},\"misses\":{\"no record\":3},\"record_uses\":1"));
}

TEST_CASE("a plot shows what serves the upper edge, the default and how sure their times are") {
  store::Record record = record_of("threads=64");
  record.candidates = {candidate(256, 2000), candidate(64, 1000), candidate(128, 90000)};
  record.candidates[0].baseline = true;
  auto failed = candidate(512, 1);
  failed.verdict = store::Verdict::wrong_result;
  record.candidates.push_back(failed);
  const auto lines = lines_of(cli::plot(record, 80));
  REQUIRE(lines.size() == 3);
  CHECK(contains(lines[0], "threads=64 "));
  CHECK(contains(lines[0], "1.000 us  serves"));
  CHECK(contains(lines[1], "2.000 us  the default"));
  CHECK(contains(lines[2], ">   90.00 us"));  // cut off
  const auto count = [](const std::string& line, char c) { return std::count(line.begin(), line.end(), c); };
  CHECK(std::abs(count(lines[1], '#') - 2 * count(lines[0], '#')) <= 2 + count(lines[0], '='));
  for (const std::string& line : lines) CHECK(line.size() <= 80);
  CHECK(cli::plot(record_of("threads=64"), 80).empty());
}

TEST_CASE("a plot of many candidates folds the middle, but not what serves or the default") {
  store::Record record = record_of("threads=70");
  for (int at = 0; at < 100; ++at) record.candidates.push_back(candidate(at + 1, 1000 + 10 * at));
  record.candidates[40].baseline = true;
  const std::string text = cli::plot(record, 100);
  CHECK(contains(text, "... 26 more"));  // between the first 14 and the default
  CHECK(contains(text, "threads=70 "));
  CHECK(contains(text, "threads=41 "));
  CHECK(contains(text, "threads=100 "));
  CHECK(lines_of(text).size() == 14 + 1 + 1 + 1 + 1 + 1 + 4);
  for (const std::string& line : lines_of(text)) CHECK(line.size() <= 100);
}

TEST_CASE(
    "show says which config serves which sizes and how long candidates took at each length, and ls how many there are") {
  const Command command;
  const std::string path = command.path("a.kiln");
  TunedRows rows = tuned({"rows=64", "cols=64"});
  store::Choice low = rows.record.choices[0];
  rows.record.choices[0].sizes = "rows=49..64";
  low.sizes = "rows=33..48";
  low.config = "threads=512";
  low.cost_ns = 700;
  rows.record.choices.insert(rows.record.choices.begin(), low);
  for (const auto& [sizes, cost_ns] : {std::pair("rows=48", 700.0), std::pair("rows=64", 1300.0)}) {
    rows.record.candidates.push_back(candidate(512, cost_ns));
    rows.record.candidates.back().sizes = sizes;
  }
  write(path, {rows});
  const auto lines = lines_of(command.run("cache show rms_norm --file " + path).output);
  const auto line_with = [&](const std::string& part) {
    const auto found = std::ranges::find_if(lines, [&](const std::string& each) { return contains(each, part); });
    return found == lines.end() ? std::string() : *found;
  };
  CHECK(contains(line_with("rows=33..48"), "threads=512"));
  CHECK(contains(line_with("rows=33..48"), "700 ns"));
  CHECK(contains(line_with("candidate  "), "rows=48"));
  CHECK(contains(line_with("1.300 us"), "700 ns"));
  const std::string listed = command.run("--json cache ls " + path).output;
  CHECK(contains(listed, "\"intervals\":2,\"configs\":2"));
  CHECK_FALSE(contains(line_with("rows=33..48"), rows.record.choices[0].source_digest.substr(0, 12)));
  CHECK(contains(line_with("  holds"), "2 intervals of sizes, 2 configs"));
}

TEST_CASE("text leaves out types and choices at their defaults, JSON and exports do not") {
  const Command command;
  const std::string a = command.path("a.kiln"), b = command.path("b.kiln");
  write(a, {tuned({"rows=64", "cols=64"})});
  write(b, {tuned({"rows=128", "cols=64", "residual=add"})});
  const std::string stored = "rows=64 cols=64 dtype=bf16 residual=none quantise=none";
  for (const std::string& arguments :
       {"cache ls " + a, "cache show rms_norm --file " + a, "cache diff " + a + " " + b}) {
    const std::string text = command.run(arguments).output;
    CAPTURE(text);
    CHECK(contains(text, "rows=64 cols=64 dtype=bf16"));
    CHECK_FALSE(contains(text, stored));
    CHECK(contains(command.run("--json " + arguments).output,
                   arguments.starts_with("cache diff") ? "residual=none" : stored));
  }
  CHECK(contains(command.run("cache ls " + b).output, "rows=128 cols=64 dtype=bf16 residual=add "));
  CHECK(contains(command.run("cache export --text " + a).output, stored));
  const std::string words = " rms_norm rows=64 cols=64 dtype=bf16";  // as it is shown, it is asked for
  CHECK(contains(command.run("--json cache show" + words + " --file " + a).output, stored));
  const Ran explained = command.run("explain" + words + " --base " + a);
  CHECK(contains(explained.output, "bucket   rows=64 cols=64 dtype=bf16\n"));
  CHECK(contains(command.run("--json explain" + words + " --base " + a).output, "\"bucket\":\"" + stored + "\""));
}

TEST_CASE("show draws the candidates, but not with --json") {
  const Command command;
  const std::string path = command.path("a.kiln");
  TunedRows rows = tuned({"rows=64", "cols=64"});
  rows.record.candidates = {candidate(64, 1000), candidate(128, 1100)};
  for (store::TriedCandidate& each : rows.record.candidates) each.sizes = "rows=64";
  write(path, {rows});
  CHECK(contains(command.run("cache show rms_norm --file " + path).output, "= is the 95 % interval"));
  const Ran json = command.run("--json cache show rms_norm rows=50 cols=64 --file " + path);
  CHECK(lines_of(json.output).size() == 1);
  CHECK_FALSE(contains(json.output, "###"));
}

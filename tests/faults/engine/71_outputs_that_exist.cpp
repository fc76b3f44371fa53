// Outputs that exist: replaced by their own kind that loses no record, or with --replace.
#include "faults/engine/fixture.hpp"
#include "store/support.hpp"

namespace kiln::faults {
namespace {

using store::bytes_of;

/// A sealed file with the record of tuned_file() and one for each of these rows.
fs::path release(const TemporaryFolder& folder, const char* name, const std::vector<const char*>& rows) {
  const fs::path whole = tuned_overlay(folder, "whole.kiln");
  const manifest::Op op = scale_op();
  store::Record record = records_of(whole).front();
  const auto file = store::File::open(whole, store::Access::read_write);
  for (const char* size : rows) {
    const Problem bucket =
        manifest::make_problem(op, std::vector<manifest::Setting>{{"rows", size}, {"cols", "128"}, {"dtype", "f32"}});
    record.key = manifest::Bucket({op, h200(), Regime::cold_l2}, bucket).key();
    record.bucket = manifest::to_string(op, bucket);
    file->put(record, nullptr);
  }
  expect(0, "kiln cache export " + whole.string() + " -o " + (folder / name).string());
  fs::remove(whole);
  return folder / name;
}

/// Runs the command with each target, which it must refuse in these words and leave as it is; then replaces it by --replace.
std::int64_t check_kept(const std::string& writer, const std::vector<fs::path>& targets, const char* said) {
  for (const fs::path& target : targets) {
    const std::string before = bytes_of(target);
    const std::string refused = expect(2, writer + target.string());
    CHECK_MESSAGE(contains(refused, said), writer, "\n", refused);
    CHECK_MESSAGE(contains(refused, "--replace"), refused);
    CHECK(bytes_of(target) == before);
    const fs::path copy = target.parent_path() / ("copy" + target.extension().string());
    fs::copy_file(target, copy);
    expect(0, writer + copy.string() + " --replace");
    CHECK(bytes_of(copy) != before);
    fs::remove(copy);
  }
  return 2 * static_cast<std::int64_t>(targets.size());
}

}  // namespace

TEST_CASE("fault 71: an export onto the file that it reads is refused, also with --replace") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  const std::string before = bytes_of(overlay);
  const std::string command = "kiln cache export --overlay " + overlay.string() + " -o " + overlay.string();
  expect(2, command);
  CHECK(contains(expect(2, command + " --replace"), "is also read by this command"));
  CHECK(bytes_of(overlay) == before);
  tally(71, 2, "exports onto their input");
}

TEST_CASE(
    "fault 71: a file of more records, an overlay or another kind of file is not replaced, except with --replace") {
  const TemporaryFolder folder;
  const fs::path large = release(folder, "large.kiln", {"128", "256"}), overlay = tuned_overlay(folder);
  const std::string own = globals(folder);
  write(folder / "w.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = 64, cols = 128 }\ntypes = { dtype = [\"f32\"] }\n");
  const std::string prewarm = "kiln prewarm " + (folder / "w.toml").string() + " --arch sm_90a" + own + "-o ";
  const std::string report = "kiln report" + own + "-o ", text = "kiln cache export --text" + own + "-o ",
                    trace = "kiln trace scale rows=1..9 cols=128 dtype=f32 --count 3" + own_ops() + "-o ",
                    whole = "kiln cache export" + own + "-o ", merge = "kiln cache merge " + overlay.string() + " -o ";
  write(folder / "mine.txt", "mine");
  write(folder / "mine.kiln", "mine");
  expect(0, "kiln cache export --text " + large.string() + " -o " + (folder / "large.jsonl").string());
  fs::copy_file(tuned_file(), folder / "theirs.kiln");  // an overlay: all of its records are in the new file
  std::int64_t cases = 0;
  for (const std::string& writer : {prewarm, whole, merge}) {
    cases += check_kept(writer, {large}, "2 of its 3 records would be lost");
    cases += check_kept(writer, {folder / "theirs.kiln"}, "is an overlay");
    cases += check_kept(writer, {folder / "mine.kiln"}, "is no file of records");
  }
  cases += check_kept(text, {folder / "large.jsonl"}, "2 of its 3 records would be lost");
  cases += check_kept(text, {folder / "mine.txt", large}, "is no text of records");
  cases += check_kept(report, {folder / "mine.txt", folder / "large.jsonl", large}, "is no page of kiln report");
  cases += check_kept(trace, {folder / "mine.txt", folder / "large.jsonl", large}, "is no trace");
  fs::create_directory(folder / "folder.kiln");
  for (const std::string& writer : {prewarm, whole, merge, text, report, trace}) {
    CHECK(contains(expect(2, writer + (folder / "folder.kiln").string() + " --replace"), "not a regular file"));
    ++cases;
  }
  tally(71, cases, "outputs that exist and are not replaced");
}

TEST_CASE("fault 71: the same kind of file is replaced where no record is lost, and so is an empty file") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  const std::string own = globals(folder);
  write(folder / "w.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = 64, cols = 128 }\ntypes = { dtype = [\"f32\"] }\n");
  const std::string prewarm = "kiln prewarm " + (folder / "w.toml").string() + " --arch sm_90a" + own + "-o ";
  const std::string text = "kiln cache export --text" + own + "-o ", report = "kiln report" + own + "-o ",
                    trace = "kiln trace scale rows=1..9 cols=128 dtype=f32 --count 3" + own_ops() + "-o ",
                    merge = "kiln cache merge " + overlay.string() + " -o ", whole = "kiln cache export" + own + "-o ";
  const std::pair<std::string, const char*> writers[] = {{prewarm, "a.kiln"}, {whole, "b.kiln"},  {merge, "c.kiln"},
                                                         {text, "d.jsonl"},   {report, "e.html"}, {trace, "f.trace"}};
  for (const auto& [writer, name] : writers) {
    write(folder / name, "");
    for (int time = 0; time < 3; ++time) expect(0, writer + (folder / name).string());
  }
  const fs::path large = release(folder, "large.kiln", {"128", "256"});
  expect(0, "kiln cache merge " + overlay.string() + " " + large.string() + " -o " + (folder / "c.kiln").string());
  CHECK(records_of(folder / "c.kiln").size() == 3);
  CHECK(contains(expect(2, "kiln cache export --force" + own + "-o " + (folder / "b.kiln").string()), "--force"));
  tally(71, 20, "outputs that are replaced by the same kind");
}

TEST_CASE("fault 71: a program that deploys over a file of more records is refused, too") {
  const TemporaryFolder folder;
  const fs::path large = release(folder, "large.kiln", {"128"});
  const std::string before = bytes_of(large);
  const Machine machine;
  const Tuner tuner(e2e::options(tuned_overlay(folder)));
  const std::vector<Demand> demands = {{"scale", tuned_bucket(scale_op())}};
  CHECK_THROWS_WITH_AS(tuner.deploy(demands, large), doctest::Contains("1 of its 2 records would be lost"), Error);
  CHECK(bytes_of(large) == before);
  TuneChoice replacing;
  replacing.replace = true;
  CHECK_NOTHROW(tuner.deploy(demands, large, replacing));
  CHECK(records_of(large).size() == 1);
  tally(71, 2, "a program's files to deploy that exist");
}

}  // namespace kiln::faults

// kiln cache merge over files that are repeated, in another order, or of somebody who means ill.
#include "faults/engine/fixture.hpp"
#include "store/support.hpp"

namespace kiln::faults {
namespace {

using store::bytes_of;

/// Three sound files: one record in common, better founded in the second; one of its own each; the first with machine code.
struct TunedFiles {
  TemporaryFolder folder;
  fs::path a = tuned_overlay(folder, "a.kiln"), b = tuned_overlay(folder, "b.kiln"), c = folder / "c.kiln";

  TunedFiles() {
    add(a, 1, 100);
    change_record(b, [](store::Record& record) { one_choice(record).samples *= 2; });
    add(b, 2, 200);
    add(c, 2, 150);
    add(c, 4, 300);
  }
  static void add(const fs::path& path, std::int64_t rows, double cost_ns) {
    const manifest::Op op = scale_op();
    store::Record record = records_of(tuned_file()).at(0);
    Problem bucket = tuned_bucket(op);
    bucket.axes[0] = rows;
    record.bucket = manifest::to_string(op, bucket);
    record.key = manifest::Bucket({op, h200(), Regime::cold_l2}, bucket).key();
    store::Choice& choice = one_choice(record);
    choice.cost_ns = cost_ns;
    choice.low_ns = 0.9 * cost_ns;
    choice.high_ns = 1.1 * cost_ns;
    store::File::open(path, store::Access::read_write)->put(record, nullptr);
  }
  /// Merges files of the folder, by name, and gives the output's bytes.
  [[nodiscard]] std::string merged(const std::vector<std::string>& names, const char* output = "out.kiln") const {
    std::string words = "kiln cache merge --replace -o " + (folder / output).string();
    for (const std::string& name : names) words += " " + (folder / name.c_str()).string();
    expect(0, words);
    return bytes_of(folder / output);
  }
};

struct Hostile {
  const char* name;
  std::function<void(const fs::path&)> spoil;  // of a copy of a sound file
};

const std::vector<Hostile>& hostile_files() {
  static const auto sql = [](const char* text) { return [text](const fs::path& path) { store::run_sql(path, text); }; };
  static const auto cut = [](double part) {
    return [part](const fs::path& path) {
      fs::resize_file(path, static_cast<std::uintmax_t>(part * static_cast<double>(fs::file_size(path))));
    };
  };
  static const std::vector<Hostile> all = {
      {"empty", cut(0)},
      {"a header alone", [](const fs::path& path) { fs::resize_file(path, 100); }},
      {"half", cut(0.5)},
      {"nearly whole", cut(0.99)},
      {"text", [](const fs::path& path) { write(path, std::string(4096, 'x')); }},
      {"of another program", sql("PRAGMA application_id = 42")},
      {"of a newer version", sql("PRAGMA user_version = 1000")},
      {"in WAL mode", sql("PRAGMA journal_mode = WAL")},
      {"with a view", sql("CREATE VIEW evil AS SELECT * FROM record")},
      {"with a trigger", sql("CREATE TRIGGER evil AFTER INSERT ON record BEGIN DELETE FROM record; END")},
      {"with one more table", sql("CREATE TABLE evil (a)")},
      {"with one more column", sql("ALTER TABLE meta ADD COLUMN evil TEXT")},
      {"without a table", sql("DROP TABLE lease")},
      {"a folder", [](const fs::path& path) { fs::remove(path), fs::create_directory(path); }},
      {"a device", [](const fs::path& path) { fs::remove(path), fs::create_symlink("/dev/zero", path); }},
      {"a link to nothing", [](const fs::path& path) { fs::remove(path), fs::create_symlink("nothing", path); }},
      {"gone", [](const fs::path& path) { fs::remove(path); }},
  };
  return all;
}

}  // namespace

TEST_CASE("fault 34: a merge is the same, byte for byte, in any order, repeated, or of merges") {
  const TunedFiles files;
  const std::string all = files.merged({"a.kiln", "b.kiln", "c.kiln"});
  const auto kept = records_of(files.folder / "out.kiln");
  CHECK(kept.size() == 4);
  std::int64_t cases = 0;
  for (const std::vector<std::string>& names :
       std::vector<std::vector<std::string>>{{"c.kiln", "b.kiln", "a.kiln"},
                                             {"b.kiln", "a.kiln", "c.kiln"},
                                             {"a.kiln", "a.kiln", "c.kiln", "b.kiln", "c.kiln", "a.kiln"},
                                             {"out.kiln", "a.kiln"},
                                             {"b.kiln", "out.kiln", "out.kiln"}}) {
    CHECK(files.merged(names, "other.kiln") == all);
    ++cases;
  }
  (void)files.merged({"c.kiln", "a.kiln"}, "ca.kiln");
  (void)files.merged({"b.kiln", "a.kiln"}, "ba.kiln");
  CHECK(files.merged({"ba.kiln", "ca.kiln"}, "other.kiln") == all);
  CHECK(files.merged({"out.kiln", "c.kiln"}) == all);  // into one of those that are read
  // Into an overlay, one after the other, the same records come together.
  const std::string overlay = " --overlay " + (files.folder / "overlay.kiln").string();
  for (const char* name : {"c.kiln", "a.kiln", "c.kiln", "b.kiln"})
    expect(0, "kiln cache merge " + (files.folder / name).string() + overlay);
  const std::string text = expect(0, "kiln cache export --text" + overlay);
  CHECK(text == expect(0, "kiln cache export --text --overlay " + (files.folder / "out.kiln").string()));
  tally(34, cases + 3, "merges by the command in other orders");
}

TEST_CASE("fault 34: a file that is refused ends a merge before anything is written, by name") {
  const TunedFiles files;
  const std::string out = (files.folder / "out.kiln").string(), good = files.a.string();
  const std::string before = files.merged({"a.kiln", "c.kiln"});
  std::int64_t cases = 0;
  for (const Hostile& hostile : hostile_files()) {
    CAPTURE(std::string(hostile.name));
    const fs::path evil = files.folder / "evil.kiln";
    fs::remove_all(evil);
    fs::copy_file(files.b, evil);
    hostile.spoil(evil);
    for (const std::string& inputs : {good + " " + evil.string(), evil.string() + " " + good}) {
      const Outcome outcome = shell("timeout 20 '" KILN_COMMAND "' cache merge --replace -o " + out + " " + inputs);
      CHECK_MESSAGE((outcome.status == 2 || outcome.status == 4), outcome.status, " ", outcome.output);
      CHECK_MESSAGE((contains(outcome.output, "evil.kiln") || contains(outcome.output, "/dev/zero")), outcome.output);
      CHECK(bytes_of(files.folder / "out.kiln") == before);
      ++cases;
    }
  }
  for (const std::string& line :
       std::initializer_list<std::string>{"{}", "{\"key\": 1}", "not json", "[1, 2", "\xff"}) {
    write(files.folder / "evil.jsonl", line + "\n");
    const Outcome outcome =
        shell("kiln cache merge --replace -o " + out + " " + good + " " + (files.folder / "evil.jsonl").string());
    CHECK(outcome.status == 2);
    CHECK_MESSAGE(contains(outcome.output, "evil.jsonl:1"), outcome.output);
    CHECK(bytes_of(files.folder / "out.kiln") == before);
    ++cases;
  }
  tally(34, cases, "merges with a file that is refused");
}

TEST_CASE("fault 34: rows that do not hold are left behind and said; forged ones that do hold give nothing to run") {
  const TunedFiles files;
  store::run_sql(
      files.b,
      "UPDATE record SET baseline_ns = 1 WHERE bucket LIKE 'rows=2 %'; UPDATE cubin SET lowered_names = '[\"evil\"]'");
  const std::string said = expect(0, "kiln cache merge --replace --json -o " + (files.folder / "out.kiln").string() +
                                         " " + files.b.string() + " " + files.a.string());
  CHECK_MESSAGE(!contains(said, R"("flawed_rows":0)"), said);
  const auto kept = records_of(files.folder / "out.kiln");
  CHECK(kept.size() == 2);
  for (const store::Record& record : kept) CHECK(record.baseline_ns > 1);
  // Better founded, it says, and of a config that the op does not declare: merged by the rule, served to nobody.
  const fs::path overlay = tuned_overlay(files.folder, "overlay.kiln");
  change_record(files.a, [](store::Record& record) {
    one_choice(record).samples = 1 << 30;
    one_choice(record).config = "threads=96 vector=4";
  });
  expect(0, "kiln cache merge " + files.a.string() + " --overlay " + overlay.string());
  const Machine machine;
  const Engine engine(e2e::options(overlay, MissPolicy::nearest));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) != Origin::overlay);
  CHECK(engine.stats().misses.unusable == 1);
  tally(34, 3, "merges with rows that are damaged or forged");
}

}  // namespace kiln::faults

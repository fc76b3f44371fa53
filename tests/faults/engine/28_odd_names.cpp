// Names, values and paths that mean something to SQL, to a shell, to C strings or to a terminal: literal, or a typed error.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

using namespace std::string_literals;

const std::vector<std::string>& odd_texts() {
  static const std::vector<std::string> all = {
      "'; DROP TABLE record; --",
      "scale' OR '1'='1",
      "\"scale\"",
      "scale\0"s,
      "sca\0le"s,
      "\0"s,
      "scale\n",
      "sca\nle\r\n",
      "scale\t",
      "%s%n%x",
      "{}{0}{rows}",
      "$(id)`id`",
      "*?[a]",
      "../scale",
      "/scale",
      "\x1b[2J\x1b]0;title\x07",
      "\xff\xfe",
      "\xc3\x28",
      "sc\xc3\xa4le",
      "scale ",
      " scale",
      "",
      "SCALE",
      "-",
      "--force",
      std::string(1 << 20, 'a'),
      std::string(1 << 20, '\''),
  };
  return all;
}

std::string in_shell(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// A sentence for one line of a terminal.
void check_sentence(std::string_view what) {
  CHECK(!what.empty());
  CHECK(what.size() < 4000);
  CHECK(what.find('\n') == std::string_view::npos);
  CHECK(what.find('\x1b') == std::string_view::npos);
  CHECK(what.find('\0') == std::string_view::npos);
}

template <class Work>
void check_bad_input(Work work) {
  const Error error = error_of(work);
  CHECK(error.kind() == ErrorKind::bad_input);
  check_sentence(error.what());
}

}  // namespace

TEST_CASE("fault 28: an odd name given to the library is an error of one line that shows it") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(e2e::options(tuned_overlay(folder), MissPolicy::error));
  const kiln::Op op = engine.op("scale");
  std::int64_t cases = 0;
  for (const std::string& odd : odd_texts()) {
    CAPTURE(odd.substr(0, 60));
    check_bad_input([&] { (void)engine.op(odd); });
    check_bad_input([&] { (void)op.axis(odd); });
    check_bad_input([&] { (void)op.tensor(odd); });
    check_bad_input([&] { (void)op.runtime(odd); });
    check_bad_input([&] { (void)op.problem({{odd, 64}, {"cols", 128}}); });
    check_bad_input([&] { (void)op.problem({{"rows", 64}, {"cols", 128}, {"dtype", odd}}); });
    check_bad_input([&] { (void)op.problem({{"rows", odd}, {"cols", 128}}); });
    check_bad_input([&] { (void)op.arguments({{odd, 1.0}}); });
    cases += 8;
  }
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);  // no table was dropped
  tally(28, cases, "odd names and values given to the library");
}

TEST_CASE("fault 28: an odd word given to the command is bad input, said in one line") {
  const TemporaryFolder folder;
  tuned_overlay(folder);
  std::int64_t cases = 0;
  for (const std::string& odd : odd_texts()) {
    if (odd.find('\0') != std::string::npos || odd.size() > 100000 || odd.starts_with('-')) continue;
    for (const std::string& words :
         {"explain " + in_shell(odd) + " rows=64 cols=128", "explain scale rows=64 cols=128 dtype=" + in_shell(odd),
          "explain scale rows=" + in_shell(odd) + " cols=128", "explain scale cols=128 " + in_shell(odd) + "=64"}) {
      const std::string said = expect(2, "kiln " + words + globals(folder));
      CAPTURE(words);
      check_sentence(std::string_view(said).substr(0, said.size() - 1));
      ++cases;
    }
  }
  CHECK(contains(expect(0, "kiln explain scale rows=64 cols=128 dtype=f32" + globals(folder)), "overlay"));
  tally(28, cases, "odd words given to the command");
}

TEST_CASE("fault 28: an odd file name is the name of a file, whatever it looks like") {
  const Machine machine;
  std::int64_t cases = 0;
  for (const std::string& name :
       {"a'b\"c.kiln"s, "a;b.kiln"s, "new\nline.kiln"s, "file:x?mode=memory"s, ":memory:"s, "%41.kiln"s, "a b.kiln"s,
        "-overlay.kiln"s, "\xff.kiln"s, "\x1b[2J.kiln"s, "{}.kiln"s, std::string(200, 'n')}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    fs::copy_file(tuned_file(), folder / name.c_str());
    const Engine engine(e2e::options(folder / name.c_str(), MissPolicy::error));
    CHECK(engine.warnings().empty());
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    const std::string at =
        " --overlay=" + in_shell((folder / name.c_str()).string()) + " --templates " + test_ops().front().string();
    CHECK(contains(expect(0, "kiln explain scale rows=64 cols=128 dtype=f32 --json" + at), R"("origin":"overlay")"));
    CHECK(std::distance(fs::directory_iterator(folder / ""), fs::directory_iterator()) == 1);
    cases += 2;
  }
  tally(28, cases, "odd names of files");
}

TEST_CASE("fault 28: a path that can be no file's leaves memory and one warning; the command refuses it") {
  const Machine machine;
  const TemporaryFolder folder;
  std::int64_t cases = 0;
  for (const std::string& path :
       {"/tmp/with\0nul.kiln"s, "/"s + std::string(5000, 'a'), std::string(1 << 20, 'b'), "/tmp/"s, "/dev/null"s,
        "/proc/self/mem"s, (folder / "none\n/x/../y").string() + std::string(300, 'c'),
        (folder / "none" / std::string(250, 'd')).string()}) {
    CAPTURE(path.substr(0, 60));
    const Engine engine(e2e::options(path, MissPolicy::nearest));
    CHECK(engine.warnings().size() == 1);
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::default_);
    ++cases;
    Options based = e2e::options("", MissPolicy::error);
    based.bases = {path};
    CHECK(Engine(based).warnings().size() == 1);
    ++cases;
  }
  CHECK(fs::is_empty(folder / ""));
  const std::string longest = "/" + std::string(5000, 'a');
  for (const std::string& words : {"--base " + longest + " explain scale rows=64 cols=128", "cache ls " + longest,
                                   "--templates " + longest + " ops", "replay " + longest, "prewarm " + longest}) {
    const Outcome outcome = shell("kiln " + words);
    CAPTURE(words.substr(0, 40));
    CHECK_MESSAGE((outcome.status == 2 || outcome.status == 4), outcome.status, " ", outcome.output);
    CHECK(!contains(outcome.output, "did not expect"));
    ++cases;
  }
  tally(28, cases, "paths that can be no file's");
}

TEST_CASE("fault 28: odd bytes in a workload, a trace or a manifest are refused by file and line") {
  const TemporaryFolder folder;
  const std::string at = globals(folder);
  std::int64_t cases = 0;
  for (const std::string& odd : odd_texts()) {
    if (odd.empty() || odd == "-") continue;
    CAPTURE(odd.substr(0, 60));
    write(folder / "workload.toml", "[[workload]]\nop = \"" + odd + "\"\naxes = { rows = 64, cols = 128 }\n");
    write(folder / "trace", "scale rows=64 cols=128 dtype=f32\n" + odd + " rows=64 cols=128 dtype=f32\n");
    CHECK(contains(expect(2, "kiln prewarm " + (folder / "workload.toml").string() + at), "workload.toml:"));
    if (odd.find('\n') == std::string::npos && odd.find_first_not_of(" \t") != std::string::npos && odd != "scale\t" &&
        odd != "scale " && odd != " scale")
      CHECK(contains(expect(2, "kiln replay --dry-run " + (folder / "trace").string() + at), "trace:2"));
    cases += 2;
  }
  tally(28, cases, "odd bytes in workloads and traces");
}

}  // namespace kiln::faults

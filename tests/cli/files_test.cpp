// Workloads and traces: what they say, and what a mistake in one says.
#include <doctest/doctest.h>

#include <sstream>

#include "cli/text_digest.hpp"
#include "cli/trace_draw.hpp"
#include "cli/trace_file.hpp"
#include "cli/workload.hpp"
#include "command.hpp"
#include "kiln/error.hpp"
#include "sample_op.hpp"

using namespace kiln;
using namespace kiln::cli;
using kiln::testing::check_refused;
using kiln::testing::Command;
using kiln::testing::message_of;
using kiln::testing::sample_op;

namespace {

std::vector<OpBucket> read_workload(const manifest::Catalogue& ops, const std::string& text) {
  return buckets_of_workload(parse_workload(text, "w.toml"), ops);
}

std::string workload_refusal(const std::string& text) {
  const auto ops = manifest::Catalogue::of({sample_op()});
  return message_of([&] { read_workload(ops, text); });
}

std::vector<TraceEntry> trace(const manifest::Catalogue& ops, const std::string& text) {
  std::istringstream stream(text);
  return parse_trace(stream, "t.trace", ops);
}

}  // namespace

TEST_CASE("a workload takes sizes, lists and text, and gives each bucket once") {
  const auto ops = manifest::Catalogue::of({sample_op()});
  const auto buckets = read_workload(ops, R"([[workload]]
op    = "twice"
axes  = { rows = "1..4", cols = [8, "16..24"] }
types = { dtype = ["bf16"] }
[[workload]]
op   = "twice"
axes = { rows = 3, cols = 8 }
)");
  CHECK(buckets.size() == 9);  // the second entry's bucket is one of the first's
  CHECK(buckets.front().op == &ops[0]);
}

TEST_CASE("a mistake in a workload is named with its line") {
  CHECK(workload_refusal("[[workload]]\nop = \"twcie\"\naxes = { rows = 1, cols = 8 }\n")
            .find("w.toml:1: there is no op 'twcie' (did you mean 'twice'?)") != std::string::npos);
  CHECK(workload_refusal("\n[[workload]]\nop = \"twice\"\naxis = { rows = 1 }\n")
            .find("w.toml:4: 'axis' is unknown (did you mean 'axes'?)") != std::string::npos);
  CHECK(workload_refusal("[[workload]]\nop = \"twice\"\nchoices = { mode = \"a\" }\n")
            .find("w.toml:3: 'choices' is unknown, expected op, axes or types, which has choices too") !=
        std::string::npos);
  CHECK(workload_refusal("[[workload]]\nop = \"twice\"\naxes = { rows = 0, cols = 8 }\n")
            .find("w.toml:1: op 'twice': axis 'rows' is 0") != std::string::npos);
  CHECK(workload_refusal("[[workload]]\naxes = { rows = 1 }\n").find("without 'op'") != std::string::npos);
  CHECK(workload_refusal("[[workload]]\nop = \"twice\"\naxes = { rows = 1.5, cols = 8 }\n")
            .find("w.toml:3: expected a size") != std::string::npos);
  CHECK(workload_refusal("[[workload]]\nop = \"twice\"\naxes = { rows = , cols = 8 }\n").find("w.toml:3: ") !=
        std::string::npos);
  CHECK(workload_refusal("jobs = 3\n").find("w.toml:1: 'jobs' is unknown, expected [[workload]]") != std::string::npos);
  CHECK(workload_refusal("").find("expected at least one [[workload]]") != std::string::npos);
}

TEST_CASE("a trace skips comments and empty lines, and remembers line numbers") {
  const auto ops = manifest::Catalogue::of({sample_op()});
  const auto entries =
      trace(ops, "# a stream\n\ntwice rows=5 cols=8 # the first\n  twice cols=16 rows=4096 dtype=f32\n");
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].line == 3);
  CHECK(manifest::to_string(ops[0], entries[1].problem) == "rows=4096 cols=16 dtype=f32");
}

TEST_CASE("a mistake in a trace is named with its line") {
  const auto ops = manifest::Catalogue::of({sample_op()});
  CHECK(message_of([&] {
          trace(ops, "twice rows=5 cols=8\ntwice rows=-1 cols=8\n");
        }).find("t.trace:2: op 'twice': axis 'rows' is -1") != std::string::npos);
  CHECK(message_of([&] { trace(ops, "thrice rows=5\n"); }).find("t.trace:1: there is no op 'thrice'") !=
        std::string::npos);
  CHECK(message_of([&] { trace(ops, "twice 5 8\n"); }).find("t.trace:1: '5' is not of the form name=value") !=
        std::string::npos);
}

TEST_CASE("a trace that cannot be read to its end is refused") {
  const Command command;
  for (const char* unreadable : {"/proc/self/mem", "- < /"})
    check_refused(command.run("replay --dry-run --device-class H200 " + std::string(unreadable)), 4,
                  "cannot be read to its end");
  check_refused(command.run("tune rms_norm rows=1 cols=64 --samples /proc/self/mem"), 4, "mem' cannot be read: ");
}

TEST_CASE("a file of another kind is answered by the command that takes it") {
  const Command command;
  const std::string workload = command.path("w.toml", "# a model\n\n[[workload]]\nop = \"rms_norm\"\n");
  const std::string trace = command.path("t.trace", "  # a stream\nrmsnorm rows=137 cols=4096\n");
  for (const char* before : {"coverage ", "prewarm ", "prewarm --arch sm_90a "})
    check_refused(command.run(before + trace), 2,
                  "t.trace is a trace, and a workload is expected; kiln replay " + trace + " --dry-run");
  for (const char* before : {"replay ", "replay --dry-run "})
    check_refused(command.run(before + workload), 2,
                  "w.toml is a workload, and a trace is expected; kiln coverage " + workload);
  check_refused(command.run("replay --dry-run - < " + workload), 2,
                "standard input is a workload, and a trace is expected; kiln coverage FILE");
  check_refused(command.run("coverage deployed.kiln"), 2, "give it by --base deployed.kiln, or the launches counted");
  check_refused(command.run("replay h200.jsonl"), 2, "a trace is expected; give it by --base h200.jsonl\n");
  check_refused(command.run("coverage " + command.path("bad.toml", "jobs = 3\n")), 2, "'jobs' is unknown");
}

TEST_CASE("a model's config.json where a workload is expected is answered by the command that takes it") {
  const Command command;
  const std::string config = command.path("config.json", "{\n  \"model_type\": \"llama\"\n}\n");
  for (const char* before : {"coverage ", "prewarm "})
    check_refused(
        command.run(before + config), 2,
        "config.json is JSON, and a workload is expected; kiln workload --config " + config + " -o FILE.toml");
}

TEST_CASE("a trace or workload that a person has changed is replaced with --replace alone") {
  const Command command;
  const std::string config = KILN_SOURCE_DIR "/tests/cli/models/llama3_8b.json";
  const auto text_of = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto check = [&](const std::string& writer, const std::string& path, const std::string& entry) {
    CAPTURE(writer);
    const std::string rewrite = writer + " -o " + path;
    REQUIRE(command.run(rewrite).status == 0);
    const std::string written = text_of(path);
    CHECK(authorship_of(written) == Authorship::whole);
    const std::string beginning = written.substr(0, written.find(" (digest "));
    CHECK(command.run(writer).output == beginning + written.substr(written.find('\n')));
    CHECK(command.run(rewrite).status == 0);
    CHECK(text_of(path) == written);
    for (const std::string& changed :
         {written + entry, written.substr(0, written.size() - 2), beginning + "!" + written.substr(beginning.size()),
          beginning + written.substr(beginning.size(), 10), written.substr(0, written.find('\n'))}) {
      std::ofstream(path) << changed;
      check_refused(command.run(rewrite), 2, "was changed after kiln ");
      CHECK(text_of(path) == changed);
    }
    std::ofstream(path) << beginning + written.substr(written.find('\n'));
    check_refused(command.run(rewrite), 2, "in its first line, so that it may have been changed; name another file");
    CHECK(command.run(rewrite + " --replace").status == 0);
    CHECK(text_of(path) == written);
  };
  check("trace rms_norm rows=1..64 cols=64 --count 5", command.path("t.trace"), "rms_norm rows=1 cols=64\n");
  check("workload --config " + config + " --tokens 1..64", command.path("w.toml"),
        "[[workload]]\nop = \"rms_norm\"\naxes = { rows = 1, cols = 64 }\n");
}

TEST_CASE("samples are appended to a new file or to samples, and to nothing else") {
  const Command command;
  const std::string tune = "tune rms_norm rows=1 cols=64 --samples ";
  const std::string other = "[op]\nsummary = \"an op of my own\"\n";
  for (const char* name : {"op.toml", "records.jsonl", "overlay", "released.kiln"}) {
    const std::string file = command.path(name, other);
    check_refused(command.run(tune + file), 2, "--samples appends text to " + file + ", which ");
    std::ifstream kept(file);
    CHECK(std::string(std::istreambuf_iterator<char>(kept), {}) == other);
  }
  check_refused(command.run(tune + command.path("new.kiln")), 2, "has the name of a file of records; name a new file");
  CHECK(command.run(tune + command.path("samples.jsonl", "{\"op\":\"x\",\"bucket\":\"rows=1\",\"key\":\"")).status ==
        3);
  CHECK(command.run(tune + command.path("new.jsonl")).status == 3);  // there is no driver
}

TEST_CASE("drawn problems are distinct, legal and the same for the same seed") {
  const manifest::Op op = sample_op();
  const ProblemSet set = parse_problem_set(op, std::vector<std::string>{"rows=1..4096", "cols=8,16", "dtype=bf16,f32"});
  Draw draw;
  draw.count = 500;
  draw.seed = 7;
  const auto problems = draw_problems(op, set, draw);
  CHECK(problems == draw_problems(op, set, draw));
  for (std::size_t i = 0; i < problems.size(); ++i) {
    CHECK(manifest::is_valid(op, problems[i]));
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(problems[i] == problems[j]);
  }
  draw.seed = 8;
  CHECK_FALSE(problems == draw_problems(op, set, draw));
}

TEST_CASE("lognormal sizes gather around their median") {
  const manifest::Op op = sample_op();
  const ProblemSet set = parse_problem_set(op, std::vector<std::string>{"rows=1..4096", "cols=8..1024"});
  Draw draw;
  draw.count = 2000;
  draw.median = 256;
  std::int64_t below = 0;
  for (const Problem& problem : draw_problems(op, set, draw)) below += problem.axes[0] < 256 ? 1 : 0;
  CHECK(below > 800);
  CHECK(below < 1200);
}

TEST_CASE("asking for more distinct problems than there are is refused") {
  const manifest::Op op = sample_op();
  const ProblemSet set = parse_problem_set(op, std::vector<std::string>{"rows=1..4", "cols=8"});
  Draw draw;
  draw.count = 5;
  CHECK(message_of([&] { draw_problems(op, set, draw); }).find("5 distinct problems were asked for and only 4 found") !=
        std::string::npos);
}

TEST_CASE("an output that names a folder is refused as one") {
  const Command command;
  const std::string config = KILN_SOURCE_DIR "/tests/cli/models/llama3_8b.json";
  check_refused(command.run("workload --config " + config + " -o " + command.path("llama.toml/")), 2,
                "llama.toml/ names a folder; name a file in it");
}

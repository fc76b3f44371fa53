// The built command, run as a person runs it: what is wrong in its arguments is said in one line, with the right exit status.
#include <limits>
#include <vector>

#include "command.hpp"
#include "sample_op.hpp"

using namespace kiln::testing;

TEST_CASE("help and version go to the standard output and succeed") {
  const Command command;
  const std::string version = command.run("--version").output;
  CHECK(version.find("kiln 0.") == 0);
  CHECK(version.find(", build ") != std::string::npos);
  const Ran help = command.run("--help");
  CHECK(help.status == 0);
  CHECK(help.output.find("Exit status: 0 success") != std::string::npos);
  CHECK(command.run("tune --help").output.find("Examples:") != std::string::npos);
}

namespace {

/// Every command, and arguments that it would begin with.
constexpr std::array<std::pair<const char*, const char*>, 29> commands = {{
    {"doctor", ""},
    {"devices", ""},
    {"ops", ""},
    {"check", "no_op"},
    {"new", "1x"},
    {"tune", "no_op rows=1"},
    {"prewarm", "none.toml -o out.kiln"},
    {"coverage", "none.toml"},
    {"run", "no_op rows=1"},
    {"explain", "no_op rows=1"},
    {"replay", "none.trace"},
    {"trace", "no_op rows=1 -o out.trace"},
    {"workload", "--config none.json"},
    {"report", "--workload none.toml -o out.html"},
    {"cache ls", "none.kiln"},
    {"cache show", "no_op"},
    {"cache stats", ""},
    {"cache diff", "none.kiln none.kiln"},
    {"cache export", "-o out.kiln --op no_op"},
    {"cache import", "none.kiln"},
    {"cache merge", "none.kiln -o out.kiln"},
    {"cache prune", "none.kiln --stale"},
    {"cache compact", "none.kiln"},
    {"cache verify", "none.kiln"},
    {"cache sign", "none.kiln --key none.pem"},
    {"cache push", ""},
    {"cache pull", ""},
    {"bench records", "--op no_op"},
    {"bench regret", "no_op rows=1"},
}};

constexpr const char* applies = "Global options that apply: ";

/// The global options that a command's help names, with a comma at the end.
std::string named_by_help(const Command& command, const std::string& name) {
  const std::string help = command.run(name + " --help").output;
  const auto at = help.find(applies);
  REQUIRE(at != std::string::npos);
  std::string line = help.substr(at, help.find(';', at) - at);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line + ",";
}

}  // namespace

TEST_CASE("each command's help names the global options that it takes, and has no other command's examples") {
  const Command command;
  for (const auto& each : commands) {
    const std::string name = each.first;
    CAPTURE(name);
    const std::string help = command.run(name + " --help").output;
    CHECK(help.find("\nGlobal options that apply: --json, --quiet") != std::string::npos);
    CHECK(help.find("what this machine has, and what follows") == std::string::npos);
  }
  CHECK(command.run("cache verify --help").output.find("--json, --quiet, --trusted-keys; see") != std::string::npos);
  CHECK(command.run("new --help").output.find("--json, --quiet; see kiln --help") != std::string::npos);
}

TEST_CASE("each command refuses the global options that it does not take, and names those that it takes") {
  const Command command;
  const std::string key_folder = command.path("keys"), ops = command.path("ops");
  std::filesystem::create_directories(key_folder);
  std::filesystem::create_directories(ops);
  const std::array<std::string, 7> options{
      "--device 0",         "--overlay ''", "--base none.kiln", "--trust signed", "--trusted-keys " + key_folder,
      "--templates " + ops, "--remote ''"};
  for (const auto& each : commands) {
    const std::string name = each.first;
    CAPTURE(name);
    const std::string named = named_by_help(command, name);
    std::string taken, others, names_of_others;
    for (const std::string& words : options) {
      const std::string option = words.substr(0, words.find(' '));
      const bool is_taken = named.find(option + ",") != std::string::npos;
      (is_taken ? taken : others) += " " + words;
      if (!is_taken) names_of_others += (names_of_others.empty() ? "" : ", ") + option;
    }
    const std::string before = name + " " + each.second;
    CHECK(command.run(before + taken).errors.find("does not take") == std::string::npos);
    if (others.empty()) continue;
    const std::string takes = named.substr(std::string_view(applies).size());
    check_refused(command.run(before + others), 2,
                  "kiln " + name + " does not take " + names_of_others + "; of the global options it takes " +
                      takes.substr(0, takes.size() - 1) + "; see kiln " + name + " --help\n");
  }
  check_refused(command.run("--templates . devices"), 2, "kiln devices does not take --templates");
}

TEST_CASE("an option that is given an empty value is refused, and does not count as one that was left out") {
  const Command command;
  const std::string file = command.path("some.kiln");
  for (const char* words :
       {"cache prune FILE --op rms_norm --unused ''", "cache prune FILE --op rms_norm --max-size ''",
        "cache prune FILE --unused 1d --op ''", "cache export --text --op ''", "cache ls --op ''",
        "tune rms_norm rows=1 cols=64 --samples ''", "explain rms_norm rows=1 cols=64 --base ''"}) {
    std::string line = words;
    if (const auto at = line.find("FILE"); at != std::string::npos) line.replace(at, 4, file);
    CAPTURE(line);
    const auto option = line.rfind("--");
    check_refused(
        command.run(line), 2,
        line.substr(option, line.find_first_of(" =", option) - option) + " is empty; give it a value, or leave it out");
  }
  check_refused(command.run("trace '' rows=1 -o -"), 2, "is empty");
}

TEST_CASE("an option with = and nothing behind it has an empty value, and takes no other word") {
  const Command command;
  const std::string workload =
      command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = 8, cols = 64 }\n");
  const std::string coverage = "coverage " + workload + " --device-class H200 --overlay= --require ";
  CHECK(command.run(coverage + "100").status == 1);
  CHECK(command.run(coverage + "0").status == 0);
  CHECK(command.run("cache ls --overlay= --json").output == command.run("cache ls --overlay '' --json").output);
  for (const char* option : {"--base", "--trusted-keys", "--templates", "--trust", "--device"})
    check_refused(command.run("explain rms_norm " + std::string(option) + "= rows=1 cols=64"), 2, option);
  for (const char* words :
       {"cache ls --op= --json", "prewarm w.toml --arch= --force", "tune rms_norm --samples= rows=1",
        "coverage --from-histogram=", "coverage --from-histogram ''"})
    check_refused(command.run(words), 2, " is empty");
  CHECK(command.run("devices --json=").status == command.run("devices --json").status);  // a flag
  check_refused(command.run("ops -- --overlay="), 2, "there is no op '--overlay='");
}

TEST_CASE("text is not written to a name of a .kiln file") {
  const Command command;
  for (const char* words : {"cache export --text -o ", "report -o ", "trace rms_norm rows=1..4 cols=64 -o "}) {
    const std::string output = command.path("text.kiln");
    check_refused(command.run(words + output), 2,
                  "the output is text, and the name " + output + " ends in .kiln; choose another name");
    CHECK(!std::filesystem::exists(output));
  }
}

TEST_CASE("no command, an unknown command and an unknown option are bad usage") {
  const Command command;
  CHECK(command.run("").status == 2);
  check_refused(command.run("tnue rms_norm"), 2, "there is no command 'tnue' (did you mean 'tune'?)");
  check_refused(command.run("verify a.kiln"), 2, "there is no command 'verify'; it is kiln cache verify\n");
  check_refused(command.run("regret gemm"), 2, "it is kiln bench regret\n");
  check_refused(command.run("cache lss"), 2,
                "there is no command 'cache lss' (did you mean 'ls'?); there are ls, show");
  check_refused(command.run("bench recrds"), 2, "there is no command 'bench recrds' (did you mean 'records'?)");
  check_refused(command.run("cache"), 2, "kiln cache needs a command: ls, show, ");
  check_refused(command.run("cache show"), 2, "OP|KEY is required; see kiln cache show --help");
  check_refused(command.run("explain"), 2, "OP is required; see kiln explain --help");
  check_refused(command.run("ops --frobnicate"), 2, "see kiln ops --help");
  check_refused(command.run("tune"), 2, "see kiln tune --help");
  check_refused(command.run("cache sign a.kiln"), 2, "--key is required; see kiln cache sign --help");
  check_refused(command.run("replay t --policy sometimes"), 2, "see kiln replay --help");
}

TEST_CASE("an option that is given twice or without its value is refused in plain words, and --json=true is --json") {
  const Command command;
  const std::string trace = "trace rms_norm rows=1..4 cols=64 ";
  check_refused(command.run(trace + "--count 1 --count 2"), 2,
                "kiln: --count takes one value, and 2 were given; give it once; see");
  check_refused(command.run("coverage --from-histogram a b"), 2, "--from-histogram takes one value, and 2 were given");
  check_refused(command.run("cache ls --op"), 2, "kiln: --op needs a value, OP; see kiln cache ls --help");
  for (const char* yes : {"--json", "--json=true", "--json=1"})
    CHECK(command.run(std::string("ops --bad ") + yes).errors.starts_with("{\"error\":{\"kind\":\"bad_input\""));
  for (const char* no : {"--json=false", "--json=0", "--jso"})
    CHECK(command.run(std::string("ops --bad ") + no).errors.starts_with("kiln: "));
}

TEST_CASE("a wrong op, axis or size is bad input, wherever it is given") {
  const Command command;
  for (const char* words : {"trace rms_norm rows=1 cols=64 -o ", "report -o ", "cache export --text -o ",
                            "cache merge a.kiln -o ", "prewarm w.toml -o "}) {
    CAPTURE(std::string(words));
    check_refused(command.run(words + std::string("''")), 2, "the output's name is empty");
    check_refused(command.run(words + command.path("none/there.kiln")), 2, "does not exist; make it, or name another");
  }
  // Before anything is tuned for it. Who is root may write everywhere.
  const std::string as_nobody = ::geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups env " : "";
  if (std::system((as_nobody + "test -x '" KILN_COMMAND "'").c_str()) == 0)
    check_refused(command.run("prewarm w.toml -o /kiln-out.kiln", as_nobody), 2,
                  "the folder of /kiln-out.kiln may not be written");
  else
    MESSAGE("Skipped: an output where one may not write, for no other user can run this clone's programs.");
  check_refused(command.run("coverage w.toml --require nan"), 2, "nan is not a number from 0 to 100");
  check_refused(command.run("prewarm w.toml --top nan"), 2, "nan is not a number from 0 to 100");
  check_refused(command.run("cache ls --op rmsnorm"), 2, "there is no op 'rmsnorm' (did you mean 'rms_norm'?)");
  check_refused(command.run("cache export --text --op rmsnorm"), 2,
                "there is no op 'rmsnorm' (did you mean 'rms_norm'?)");
  check_refused(command.run("ops rmsnorm"), 2, "there is no op 'rmsnorm' (did you mean 'rms_norm'?)");
  check_refused(command.run("tune rms_norm rows=0 cols=4096"), 2, "axis 'rows' is 0, expected 1 or more");
  check_refused(command.run("run rms_norm rows=1..5 cols=4096"), 2, "this command takes one problem");
  check_refused(command.run("run rms_norm rows=1 cols=64 epsilom=1"), 2,
                "'epsilom' is unknown (did you mean 'epsilon'?)");
  check_refused(command.run("tune rms_norm rows=1 cols=64 epsilon=1"), 2,
                "'epsilon' is a run-time value, which each launch gives and no problem or bucket has");
  check_refused(command.run("tune mine.toml"), 2, "; a workload is for kiln prewarm and kiln coverage");
  check_refused(command.run("coverage rms_norm rows=1..64 cols=64"), 2,
                "'rows=1..64' is no workload file; write the op and its sizes into one");
  check_refused(command.run("explain rms_norm rosw=1 cols=4096"), 2, "'rosw' is unknown (did you mean 'rows'?)");
  check_refused(command.run("explain rms_norm rows=9223372036854775808 cols=4096"), 2, "which 64 bits cannot hold");
  check_refused(
      command.run("explain rms_norm rows=1 cols=64 --device-class H201"), 2,
      "the device class 'H201' does not parse, expected H200, H100, A100, L40S, L4, 4090, B200, 5090 or a form such as");
  check_refused(command.run("ops rms_norm --arch sm_99"), 2, "there is no architecture sm_99; there are sm_70, sm_72");
  check_refused(command.run("ops rms_norm --arch 90"), 2, "the architecture '90' does not parse");
  check_refused(command.run("ops rms_norm --arch sm_90"), 2,
                "--arch is sm_90, but launches on such a device need code for sm_90a; give --arch sm_90a");
}

TEST_CASE("a command that writes a file says so on the standard output, and nothing where the file goes to it") {
  const Command command;
  const std::string trace = "trace rms_norm rows=1..64 cols=64 --count 5 -o ";
  CHECK(command.run(trace + command.path("t.trace")).output == command.path("t.trace") + ": 5 distinct problems\n");
  CHECK(command.run("--json " + trace + command.path("t.trace")).output ==
        "{\"event\":\"written\",\"file\":\"" + command.path("t.trace") + "\",\"distinct\":5}\n");
  CHECK(command.run(trace + "-").output.find(": 5 distinct") == std::string::npos);
  CHECK(command.run("report -o " + command.path("r.html")).output.find("r.html: 0 records, ") != std::string::npos);
}

TEST_CASE("a machine without a driver is told so, with the exit status for what is lacking") {
  const Command command;
  CHECK(command.run("devices").status == 3);
  CHECK(command.run("tune rms_norm rows=1 cols=64").status == 3);
  CHECK(command.run("run rms_norm rows=1 cols=64").status == 3);
}

TEST_CASE("prewarm and replay on a machine without a driver name what they do without one") {
  const Command command;
  const std::string workload =
      command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = 16, cols = 4096 }\n");
  const Ran warmed = command.run("prewarm " + workload + " -o " + command.path("out.kiln"));
  CHECK(warmed.status == 3);
  CHECK(warmed.errors.find("\nWithout a GPU, --device-class compiles for records of a --base") != std::string::npos);
  const Ran replayed = command.run("replay " + command.path("t.trace", "rms_norm rows=137 cols=4096\n"));
  CHECK(replayed.status == 3);
  CHECK(replayed.errors.find("\nWithout a GPU, --dry-run looks the trace up") != std::string::npos);
}

TEST_CASE("doctor says what is absent, and that is no failure") {
  const Command command;
  const Ran ran = command.run("doctor");
  CAPTURE(ran.errors);
  CHECK(ran.status == 0);
  CHECK(ran.output.find("absent  driver") != std::string::npos);
  CHECK(ran.output.find("only what the files hold machine code for can be launched") != std::string::npos);
  CHECK(ran.output.find("processes of kiln-worker") != std::string::npos);
}

TEST_CASE("doctor calls a library broken that a variable names and that does not open") {
  const Command command;
  CHECK(command.run("doctor", "KILN_CUBLASLT_LIBRARY=none ").status == 0);
  const Ran ran = command.run("doctor", "KILN_CUBLASLT_LIBRARY=/nowhere/libcublasLt.so ");
  CAPTURE(ran.output);
  CHECK(ran.status == 1);
  CHECK(ran.output.find("BROKEN  cuBLASLt") != std::string::npos);
}

TEST_CASE("doctor says where compiles run when there is no worker") {
  setenv("KILN_WORKER", "none", 1);
  const Ran ran = Command().run("doctor");
  unsetenv("KILN_WORKER");
  CHECK(ran.status == 0);
  CHECK(ran.output.find("absent  worker") != std::string::npos);
  CHECK(ran.output.find("compiles: in this process, up to") != std::string::npos);
}

TEST_CASE("with --json an error is one object on the standard error") {
  const Command command;
  const Ran ran = command.run("--json ops rmsnorm");
  CHECK(ran.status == 2);
  CHECK(ran.output.empty());
  CHECK(ran.errors.find("{\"error\":{\"kind\":\"bad_input\",\"message\":\"there is no op") == 0);
  CHECK(command.run("tnue --json").errors.find("{\"error\":{\"kind\":\"bad_input\"") == 0);
}

TEST_CASE("explain and a dry replay need no device") {
  const Command command;
  const Ran explained = command.run("explain rms_norm rows=137 cols=4096");
  CHECK(explained.status == 0);
  CHECK(explained.output.find("rows=256 cols=4096") != std::string::npos);
  CHECK(explained.output.find("default, a fallback") != std::string::npos);
  const Ran replayed = command.run("replay --dry-run --device-class sm_90/mp132/l2_62914560/smem_232448/bus_6016 " +
                                   command.path("t.trace", "rms_norm rows=137 cols=4096\n"));
  CHECK(replayed.status == 1);
  CHECK(replayed.output.find("Lookups only, for ") == 0);
}

TEST_CASE("a bucket that nothing can serve on a device is said to be so, and nothing is compiled for it") {
  const Command command;
  const std::string workload =
      command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = 16, cols = 4096 }\n");
  const Ran ran = command.run("prewarm " + workload + " --device-class sm_75/mp72/l2_6291456/smem_65536/bus_384 -o " +
                              command.path("out.kiln"));
  CAPTURE(ran.errors);
  CHECK(ran.status == 1);
  CHECK(ran.output.find("0 cubins") != std::string::npos);
  CHECK(ran.output.find("no record; no implementation of 'rms_norm' has a default that is legal") != std::string::npos);
}

TEST_CASE("files that are missing, foreign or in the way are refused by name") {
  const Command command;
  check_refused(command.run("cache ls " + command.path("none.kiln")), 2, "none.kiln does not exist");
  check_refused(command.run("explain rms_norm rows=1 cols=64 --base " + command.path("none.kiln")), 2,
                "none.kiln does not exist");
  check_refused(command.run("cache ls " + command.path("foreign.kiln", "not a database, certainly not one of kiln's")),
                4, "foreign.kiln");
  check_refused(command.run("cache import " + command.path("bad.jsonl", "{}\n")), 2, "bad.jsonl:1");
  check_refused(command.run("cache ls --base " + command.path("bad.jsonl")), 4, "bad.jsonl:1");
  check_refused(command.run("cache ls --trusted-keys " + command.path("none")), 2,
                "/none is not a folder; give the folder with the NAME.pem files");
  check_refused(command.run("-q report -o " + command.path("x.html") + " --base " + command.path("bad.kiln", "text")),
                4, "it is not a .kiln file");
  check_refused(command.run("cache export --text -o " + command.path("there.jsonl", "precious")), 2,
                "there.jsonl' exists and is no text of records");
  check_refused(
      command.run("prewarm " + command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\n") + " --arch sm_90a"), 2,
      "w.toml:1: op 'rms_norm': axis 'rows' is missing");
}

TEST_CASE("a base that an install has is looked for in a checkout's cache, which has the text") {
  const Command command;
  std::filesystem::create_directories(command.path("cache"));
  (void)command.path("cache/h100.jsonl", "{}");
  check_refused(command.run("explain rms_norm rows=1 cols=8 --base h100.kiln", "cd '" + command.path("") + "'; "), 2,
                "the base h100.kiln does not exist; there is cache/h100.jsonl; ");
  (void)command.path("cache/llama3_8b.toml", "#");
  check_refused(command.run("explain rms_norm rows=1 cols=8 --base llama3_8b.kiln", "cd '" + command.path("") + "'; "),
                2, "the base llama3_8b.kiln does not exist; give ");
}

TEST_CASE("a file or folder that is named and does not exist is bad input for each command") {
  const Command command;
  const std::string none = command.path("none");
  for (const std::string& line :
       {"coverage " + none, "replay --dry-run " + none, "prewarm " + none + " --arch sm_90a",
        "workload --config " + none, "cache verify " + none, "cache sign " + none + " --key " + none,
        "cache sign " + command.path("some.kiln", "any") + " --key " + none,
        "cache merge " + none + " -o " + none + "2", "cache import " + none, "ops --templates " + none,
        "explain rms_norm rows=2 cols=256 --device-class H100 --base " + none})
    check_refused(command.run(line), 2, none);
}

TEST_CASE("a command that shows records refuses an overlay that does not exist; beside a base it is noted") {
  const Command command;
  const std::string workload =
      command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = 8, cols = 64 }\n");
  const std::string base = command.path("base.jsonl", "\n"), overlay = " --overlay " + command.path("none.kiln");
  const std::string trace = command.path("one.trace", "rms_norm rows=8 cols=64\n");
  const std::string said = "the overlay " + command.path("none.kiln") + " does not exist";
  for (const std::string& words :
       {"report -o " + command.path("page.html"), std::string("bench records"), std::string("cache ls"),
        std::string("cache stats"), std::string("cache show rms_norm"), std::string("cache export --text")}) {
    CAPTURE(words);
    check_refused(command.run(words + overlay), 2, said + " and holds no record; give the path of a file of records");
  }
  CHECK(!std::filesystem::exists(command.path("page.html")));
  const std::string note = "kiln: " + said + ", so nothing is read from it\n";
  CHECK(command.run("cache ls" + overlay + " --base " + base).errors == note);
  CHECK(command.run("coverage --device-class H200 " + workload + overlay).errors == note);
  CHECK(command.run("replay --dry-run --device-class H200 " + trace + overlay).errors == note);
  CHECK(command.run("-q coverage --device-class H200 " + workload + overlay).errors.empty());
  CHECK(!std::filesystem::exists(command.path("none.kiln")));
  CHECK(command.run("cache ls --overlay ''").status == 0);
}

TEST_CASE("a number that an option does not take is refused with the range, and never read as another") {
  const Command command;
  const std::string most = std::to_string(std::numeric_limits<std::uint64_t>::max());
  const auto refused = [&](const std::string& words, const std::string& option, const std::vector<const char*>& wrong,
                           const std::string& range) {
    for (const char* number : wrong) {
      CAPTURE(words);
      check_refused(command.run(words + " " + option + "=" + number), 2,
                    option + ": " + number + " is not a " + range + "; see kiln");
    }
  };
  const std::string gemm = " gemm m=1..8 n=64 k=64";
  for (const char* words : {"tune", "bench regret", "trace -o -"})
    refused(words + gemm, "--seed", {"-1", "18446744073709551616", "1e3", "0x10", "+1", "1.5", "nan"},
            "whole number from 0 to " + most);
  refused("prewarm --from-histogram", "--limit", {"0", "-1", "1000000001", "1e3"}, "whole number from 1 to 1000000000");
  refused("bench records", "--limit", {"0", "-1", "18446744073709551616"}, "whole number from 1 to 1000000000");
  refused("bench records", "--tolerance", {"-1", "nan", "inf", "five"}, "number from 0 to 1000000");
  refused("bench regret" + gemm, "--lengths", {"-1", "18446744073709551616"}, "whole number from 0 to 1000000000");
  refused("cache verify a.kiln", "--limit", {"-1"}, "whole number from 0 to 1000000000");
  refused("check gemm", "--compiles", {"0", "-1", "10001"}, "whole number from 1 to 10000");
  refused("run" + gemm, "--iterations", {"0", "-1", "1e300"}, "whole number from 1 to 10000000");
  refused("trace -o -" + gemm, "--count", {"0", "-1"}, "whole number from 1 to 10000000");
  refused("trace -o -" + gemm, "--sigma", {"-1", "nan", "inf"}, "number from 0 to 10");
  refused("tune" + gemm, "--trials", {"0", "-1"}, "whole number from 1 to 1000000");
  refused("tune" + gemm, "--seconds", {"0", "-1", "nan"}, "number from 0.001 to 1000000");
  refused("tune all_reduce", "--ranks", {"0", "-1", "65"}, "whole number from 1 to 64");
  refused("workload --config c.json", "--ranks", {"0", "65"}, "whole number from 1 to 64");
  refused("tune" + gemm, "--device", {"-1", "1024", "0x1"}, "whole number from 0 to 1023");
  check_refused(command.run("tune" + gemm + " --devices 0,1,0"), 2,
                "--devices is '0,1,0', which names device 0 twice; name each device once");

  // CLI11 alone would read 010 as 8.
  CHECK(command.run("trace -o - gemm m=1..64 n=64 k=64 --count=010").output ==
        command.run("trace -o - gemm m=1..64 n=64 k=64 --count=10").output);
  CHECK(command.run("trace -o - gemm m=1..64 n=64 k=64 --count=2 --seed=" + most).status == 0);
}

TEST_CASE("an op with a wrong manifest is refused by name, is noted by other commands, and stops none of them") {
  const Command command;
  for (const char* name : {"twice", "thrice"}) std::filesystem::create_directories(command.path(name));
  (void)command.path("twice/op.toml", "[op]\nsummary = 3\n");
  (void)command.path("thrice/op.toml", "[op\n");
  const std::string own = " --templates " + command.path("");
  const Ran listed = command.run("ops" + own);
  CHECK(listed.status == 0);
  CHECK(listed.output.find("rms_norm") != std::string::npos);
  CHECK(listed.errors.find("the op 'twice' is left out: " + command.path("twice/op.toml") + ":2: ") !=
        std::string::npos);
  CHECK(std::count(listed.errors.begin(), listed.errors.end(), '\n') >= 2);
  check_refused(command.run("-q explain twice rows=1" + own), 2, "the op 'twice' is refused: ");
  const Ran doctor = command.run("doctor" + own);
  CHECK(doctor.status == 1);
  CHECK(doctor.output.find("2 ops left out, and the other ops serve") != std::string::npos);
}

TEST_CASE("ops prints an op's contract, and in JSON what a program needs to call it") {
  const Command command;
  const std::string asked =
      "ops attention_forward queries=128 keys=128 heads=8 key_heads=2 head_dim=128 value_dim=128 batch=2";
  CHECK(command.run(asked).output.find("\n\nout = softmax(scale * q k^T) v, head by head, and its lse.") !=
        std::string::npos);
  const std::string json = command.run("--json " + asked).output;
  for (const char* part : {R"("contract":"out = softmax()", R"("sizes":[2,128,8,128])", R"("best_alignment":16)",
                           R"("element":"bf16")", R"("default_strides":[131072,1024,128,1])"})
    CHECK_MESSAGE(json.find(part) != std::string::npos, part << " in " << json);
}

TEST_CASE("ops tells what is not legal from what is not worth a trial") {
  const Command command;
  std::filesystem::create_directories(command.path("twice"));
  std::string plain;
  for (const auto& [name, text] : sample_files()) {
    if (name == "plain.toml") plain = text.str();
    std::ofstream(command.path("twice/" + name)) << text.str();
  }
  const auto with = [&](const std::string& table) {
    std::string text = plain;
    text.insert(text.find("[default]"), table);
    std::ofstream(command.path("twice/plain.toml")) << text;
    return command.run("ops twice rows=64 cols=64 --templates " + command.path("")).output;
  };
  const std::string all = with("");
  CHECK_MESSAGE(all.find("eligible: 2 combinations, 2 legal by [constraints], 2 worth a trial\n") != std::string::npos,
                all);
  CHECK(with("[constraints]\nall = [\"threads < 128\"]\n").find("1 legal by [constraints], 1 worth a trial") !=
        std::string::npos);
  CHECK(with("[search]\nall = [\"threads > 256\"]\n").find("2 legal by [constraints], 0 worth a trial") !=
        std::string::npos);
}

TEST_CASE("an option that a command has not is named, with the one that is near") {
  const Command command;
  check_refused(command.run("tune --forse"), 2,
                "kiln tune has no option '--forse' (did you mean '--force'?); see kiln tune --help");
  check_refused(command.run("cache ls --bse=x.kiln"), 2,
                "kiln cache ls has no option '--bse' (did you mean '--base'?)");
  check_refused(command.run("tune --zzzzzz"), 2, "has no option '--zzzzzz'; sizes, types and choices have no dashes: ");
  check_refused(command.run("tune rms_norm rows=1 cols=64 --dtype bf16"), 2,
                "kiln tune has no option '--dtype'; sizes, types and choices have no dashes: dtype=bf16; see");
  check_refused(command.run("doctor --zzzzzz"), 2, "has no option '--zzzzzz'; see");
  check_refused(command.run("--device-class H200 explain rms_norm rows=137 cols=4096"), 2,
                "'--device-class' goes after the command: kiln explain --device-class ...; see kiln explain --help");
}

TEST_CASE("a trace is drawn without a device, and what is drawn can be replayed") {
  const Command command;
  const std::string trace = command.path("drawn.trace");
  CHECK(command.run("trace rms_norm rows=1..16384 cols=4096,8192 --count 50 --seed 3 -o " + trace).status == 0);
  const Ran replayed =
      command.run("--json replay --dry-run --device-class sm_90/mp132/l2_62914560/smem_232448/bus_6016 " + trace);
  CHECK(replayed.output.find("\"distinct\":50") != std::string::npos);
  CHECK(replayed.output.find("\"launched\":0") != std::string::npos);
}

// What the command prints for a terminal of some width, which COLUMNS stands in for.
#include "tuned_files.hpp"

using namespace kiln;
using namespace kiln::testing;

namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string run_at(const Command& command, int columns, const std::string& arguments) {
  return command.run(arguments, "COLUMNS=" + std::to_string(columns) + " ").output;
}

void check_fits(const Command& command, const std::string& arguments) {
  for (const int columns : {80, 100}) {
    const std::string text = run_at(command, columns, arguments);
    CHECK(!text.empty());
    for (const std::string& line : split_lines(text))
      CHECK_MESSAGE(line.size() <= static_cast<std::size_t>(columns), (arguments + ": " + line));
  }
}

std::string many_records(const Command& command) {
  const auto file = store::File::open(command.path("many.kiln"), store::Access::read_write);
  TunedRows rows = tuned({"rows=64", "cols=64", "dtype=bf16"});
  std::vector<store::Record> records;
  for (int cols = 64; cols < 64 + 8 * 101; cols += 8)
    records.push_back(tuned({"rows=64", "cols=" + std::to_string(cols), "dtype=bf16"}).record);
  records.back().provenance.unix_seconds += 86400;
  file->put_all(records, rows.cubins);
  return command.path("many.kiln");
}

}  // namespace

TEST_CASE("the description of each op fits a terminal of 80 columns, and one of 100") {
  const Command command;
  for (const char* op : {"attention_forward", "gemm", "all_gather_gemm", "rotary"})
    check_fits(command, std::string("ops ") + op);
  check_fits(command, "ops");
}

TEST_CASE("a contract is wrapped as paragraphs, and a file or a pipe gets it as the manifest has it") {
  const Command command;
  const auto lines = split_lines(run_at(command, 80, "ops attention_forward"));
  const auto first = std::ranges::find_if(lines, [](const std::string& each) { return each.starts_with("out = "); });
  REQUIRE(lines.end() - first > 3);
  for (int i = 0; i < 3; ++i) CHECK_MESSAGE(first[i].size() > 60, first[i]);
  CHECK(says(command.run("ops attention_forward").output,
             "window_left before it to window_right after it (window). The\ndiagonal joins last query"));
}

TEST_CASE("an op is described for usual sizes") {
  const Command command;
  CHECK(says(command.run("ops attention_forward").output,
             "\nFor batch=8 queries=4096 keys=4096 heads=32 key_heads=8 head_dim=128 value_dim=128 dtype=bf16 on "));
  CHECK(says(command.run("ops attention_decode heads=12").output, " queries=1 heads=12 key_heads=4 head_dim=128 "));
  CHECK(says(command.run("ops all_gather").output, "\nFor rows=4096 cols=4096 world=8 dtype=bf16 on "));
}

TEST_CASE("a record, its list and what is next fit a terminal, and no word of a row is cut") {
  const Command command;
  TunedRows rows = tuned({"rows=256", "cols=4096", "dtype=bf16"});
  rows.record.choices[0].compiler = "nvrtc 13.0 build 65be0db342ad51a06876e71e210bccc5aa8322cf";
  put(*store::File::open(command.path("a.kiln"), store::Access::read_write), rows);
  const std::string show = "cache show rms_norm rows=256 cols=4096 --file " + command.path("a.kiln");
  for (const std::string& arguments :
       {show, "cache ls " + command.path("a.kiln"), "cache stats " + command.path("a.kiln"),
        "explain rms_norm rows=256 cols=4096 --base " + command.path("a.kiln"),
        "coverage " + workload_of(command, "[256, 512]") + " --base " + command.path("a.kiln")})
    check_fits(command, arguments);
  const std::string shown = run_at(command, 80, show);
  CHECK_MESSAGE(says(shown, "rows=129..256 "), shown);
  CHECK_FALSE(says(shown, "65be0db342ad"));
  CHECK(says(shown, "nvrtc 13.0\n"));
  CHECK(says(command.run("--json " + show).output, "65be0db342ad"));
}

TEST_CASE("no character is cut where a word is longer than a line") {
  const Command command;
  std::string name;
  for (int i = 0; i < 12; ++i) name += "\u00e4\u00f6\u65e5\u672c\u8a9e";
  const std::string explain = "explain rms_norm rows=256 cols=4096 --overlay " + command.path(name + ".kiln");
  for (int columns = 40; columns < 50; ++columns) {
    const std::string text = run_at(command, columns, explain);
    CHECK(says(text, "\u672c\u8a9e"));
    CHECK_MESSAGE(!says(text, "\\x"), text);
  }
  CHECK(says(run_at(command, 2, explain), "\u8a9e"));
}

TEST_CASE(
    "a terminal gets a summary by op of a file with many records, and each record where an op or --all is named") {
  const Command command;
  const std::string ls = "cache ls " + many_records(command);
  const std::string summary = run_at(command, 80, ls);
  CHECK_MESSAGE(split_lines(summary).size() < 10, summary);
  CHECK(says(summary, ": 101 records"));
  CHECK(says(summary, "op        records  intervals  configs  tuned                machine code"));
  CHECK(says(summary, "rms_norm      101        101        "));
  CHECK(says(summary, "2026-09-21 to 09-22  "));
  CHECK(says(summary, " cubins, "));
  CHECK(says(summary, "--op OP"));
  for (const std::string& each : {run_at(command, 80, ls + " --op rms_norm"), run_at(command, 80, ls + " --all"),
                                  command.run(ls).output, command.run("--json " + ls).output})
    CHECK(split_lines(each).size() >= 101);
}

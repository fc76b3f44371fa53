// kiln report: the facts that its page holds. What a browser draws from them is in tests/page.
#include <sstream>

#include "cli/command.hpp"
#include "cli/report/facts.hpp"
#include "cli/report/page.hpp"
#include "cli/report_file.hpp"

using namespace kiln;
using namespace kiln::cli::report;
using kiln::cli::Json;
using kiln::testing::check_refused;
using kiln::testing::Command;

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

/// The page that the command writes of these bases.
std::string report_of(const Command& command, const std::string& arguments) {
  const auto ran = command.run("report -o '" + command.path("page.html") + "' " + arguments);
  CHECK_MESSAGE(ran.status == 0, ran.errors);
  return read_file(command.path("page.html"));
}

std::string sample_page(const Command& command, const std::string& more = {}) {
  kiln::testing::write_report_file(command.path("base.kiln"));
  return report_of(command, "--base '" + command.path("base.kiln") + "' " + more);
}

/// The JSON block's text, up to the first end tag, as a browser takes it.
std::string data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"facts\">";
  REQUIRE(count(page, begin) == 1);
  const std::size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

Json facts_in(const std::string& page) { return Json::parse(data_of(page)); }

const Json& record_of(const Json& facts, const std::string& bucket) {
  const auto found = std::find_if(facts["records"].begin(), facts["records"].end(),
                                  [&](const Json& each) { return each["bucket"] == bucket; });
  REQUIRE_MESSAGE(found != facts["records"].end(), bucket);
  return *found;
}

constexpr const char* fixed = " cols=4096 dtype=bf16 residual=none quantise=none";

bool is_missing(const Json& facts, const std::string& bucket, std::int64_t launches, std::int64_t sizes) {
  const Json& missing = facts["missing"]["most_launched"];
  return std::find(missing.begin(), missing.end(),
                   Json{{"op", "rms_norm"}, {"bucket", bucket}, {"launches", launches}, {"sizes", sizes}}) !=
         missing.end();
}

}  // namespace

TEST_CASE("a report's facts are records, times, candidates, rates, uses, what is stale and what is missing") {
  const Command command;
  const Json facts = facts_in(sample_page(command));
  CHECK(facts["records_found"] == 7);
  CHECK(facts["records"].size() == 7);
  const Json& record = record_of(facts, std::string("rows=256") + fixed);
  CHECK(record["cost_ns"].get<double>() == doctest::Approx(24565));
  CHECK(record["baseline_ns"].get<double>() == doctest::Approx(24565 * 1.5));
  CHECK(record["axes"] == Json{256, 4096});
  CHECK(record["lows"] == Json{129, 4096});
  CHECK(record["dtype"] == "bf16");
  CHECK(record["bytes_per_second"].get<double>() > 1e9);
  CHECK(record["times"].size() ==
        2);  // the same bucket at another length, by its candidates' times, and the upper edge
  CHECK(record["times"][0]["axes"] == Json{192, 4096});
  CHECK(record["times"][0]["cost_ns"].get<double>() == doctest::Approx(24565 * 0.8));
  CHECK(record["times"][1]["baseline_ns"] == record["baseline_ns"]);
  CHECK(record["trials"]["verdicts"] == Json{{"ok", 3}, {"wrong_result", 1}});
  CHECK(record["trials"]["costs_ns"].size() == 3);
  CHECK(record["trials"]["reason"] == kiln::testing::hostile);
  CHECK(facts["launches"]["total"] == 1001);
  CHECK(facts["launches"]["most"][0] == Json{"hot", 900});
  CHECK(facts["misses"]["most"] == Json::array({Json{"absent", 7}}));
  const Json& stale = record_of(facts, "rows=8 cols=8192 dtype=bf16 residual=none quantise=none");
  CHECK(stale["standing"] == "stale");
  CHECK(stale.contains("axes"));  // the op still has its bucket: the sources have changed
  CHECK(record_of(facts, kiln::testing::hostile)["standing"] == "unknown");
  CHECK(is_missing(facts, std::string("rows=131072") + fixed, 77, 2));     // both sizes, one bucket
  CHECK_FALSE(is_missing(facts, std::string("rows=16") + fixed, 500, 1));  // not missing
  CHECK(facts["problems"] == Json{{"counted", 4}, {"unreadable", 1}});
  CHECK(facts["devices"][record["device"].get<std::size_t>()]["roof"]["bytes_per_second"] == 4.3e12);
}

TEST_CASE(
    "text from a file stays in the JSON block, whatever it says, and the page's policy lets only its own script run") {
  const Command command;
  const std::string page = sample_page(command);
  CHECK(count(page, "<script") == 2);  // the facts and the page's own
  CHECK(count(page, "</script") == 2);
  CHECK(count(page, "<img") == 0);
  CHECK(count(page, "<!--") == 0);
  CHECK(count(page, "\xE2\x80\xA8") == 0);
  CHECK(count(page, R"(\u003cscript>window.pwned = true\u003c/script>)") > 5);
  CHECK(has(page, "default-src 'none'; style-src 'sha256-"));
  CHECK(has(page, "script-src 'sha256-"));
  CHECK_FALSE(has(page, "unsafe-inline"));
  CHECK_FALSE(has(page, " style="));  // the policy would not let it
}

TEST_CASE("a report asks for nothing from outside, and makes no markup of text") {
  const Command command;
  const std::string page = sample_page(command);
  for (const char* word : {"http://", "https://", "src=\"", "@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML",
                           "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval("})
    CHECK_MESSAGE(!has(page, word), std::string(word));
  CHECK(has(page, "<noscript><p>This page needs scripts"));
}

TEST_CASE("the same files give the same report, from text as from a .kiln file but for their names") {
  const Command command;
  const std::string first = sample_page(command);
  CHECK_MESSAGE(report_of(command, "--base '" + command.path("base.kiln") + "'") == first, "the pages differ");
  const auto exported =
      command.run("cache export '" + command.path("base.kiln") + "' --text -o '" + command.path("base.jsonl") + "'");
  CHECK_MESSAGE(exported.status == 0, exported.errors);
  const Json text = facts_in(report_of(command, "--base '" + command.path("base.jsonl") + "'"));
  CHECK(has(text["sources"][1]["name"], "base.jsonl"));
  CHECK(text["records"] == facts_in(first)["records"]);
}

TEST_CASE("a report can be of one op or one device class; a device whose roof is not known has none") {
  const Command command;
  const Json facts = facts_in(sample_page(command, std::string("--device-class ") + kiln::testing::h100));
  CHECK(facts["records_found"] == 1);
  CHECK(facts["records"].size() == 1);
  CHECK(facts["devices"].size() == 1);
  CHECK(facts["devices"][0]["roof"] == nullptr);
  CHECK(is_missing(facts, std::string("rows=16") + fixed, 500, 1));  // of this device there is none
  const Json one_op = facts_in(sample_page(command, "--op rms_norm"));
  CHECK(one_op["records_found"] == 6);
  for (const Json& record : one_op["records"]) CHECK(record["op"] == "rms_norm");
  for (const Json& device : one_op["devices"]) CHECK(device["name"] == "NVIDIA H200");
  check_refused(command.run("report -o x.html --op rms_nrom"), 2, "did you mean 'rms_norm'");
  check_refused(command.run("report -o x.html --device-class fast"), 2, "does not parse");
}

TEST_CASE("a report of a workload lists its buckets without a record, for each device, and says which Kiln wrote it") {
  const Command command;
  const std::string workload = command.path(
      "w.toml",
      "[[workload]]\nop = \"rms_norm\"\naxes = { rows = \"1..1024\", cols = 4096 }\ntypes = { dtype = \"bf16\" }\n");
  const std::string device = std::string(" --device-class ") + kiln::testing::h200;
  const Json facts = facts_in(sample_page(command, "--workload " + workload + device));
  CHECK(facts["workload"]["buckets"] == 11);
  CHECK(facts["workload"]["missing"].get<int>() < 11);
  const std::string gaps = facts["workload"]["gaps"].dump();
  CHECK_MESSAGE(has(gaps, "\"op\":\"rms_norm\""), gaps);
  CHECK_MESSAGE(has(gaps, "cols=4096 dtype=bf16"), gaps);
  CHECK_FALSE(facts_in(sample_page(command)).contains("workload"));
  CHECK(command.run("--version").output.find("kiln " + facts["kiln"].get<std::string>()) == 0);
}

TEST_CASE("a report names no home folder, neither this user's nor another's") {
  setenv("HOME", "/data/alice", 1);
  Json document{
      {"name", "/data/alice/.cache/kiln/overlay.kiln"},
      {"why", Json::array({"in /home/bob/ops/x.cuh:3, and /root/a", "x/home/bob", "/data/alice2/y", "/home/carol"})}};
  hide_homes(document);
  unsetenv("HOME");
  CHECK(document["name"] == "~/.cache/kiln/overlay.kiln");
  CHECK(document["why"] == Json::array({"in ~/ops/x.cuh:3, and ~/a", "x/home/bob", "/data/alice2/y", "~"}));
}

TEST_CASE("a report of empty files has no records, no launches and no problems") {
  const Command command;
  const Json facts = facts_in(report_of(command, ""));
  for (const char* list : {"records", "devices"}) CHECK_MESSAGE(facts[list] == Json::array(), list);
  CHECK(facts["launches"] == Json{{"total", 0.0}, {"most", Json::array()}});
  CHECK(facts["problems"] == Json{{"counted", 0}, {"unreadable", 0}});
  CHECK(facts["sources"].size() == 1);
}

TEST_CASE("a report of very many records leaves out what would make it unusable, and says so") {
  const Command command;
  {
    const auto file = store::File::open(command.path("many.kiln"), store::Access::read_write);
    std::vector<store::Record> records;
    const store::Record pattern = kiln::testing::tuned({"rows=1", "cols=8", "dtype=bf16"}).record;
    for (int i = 1; i <= 5'500; ++i) {
      records.push_back(pattern);
      records.back().key = "record " + std::to_string(i);
    }
    file->put_all(records, {});
  }
  const std::string page = report_of(command, "--base '" + command.path("many.kiln") + "'");
  const Json facts = facts_in(page);
  CHECK(facts["records_found"] == 5'500);
  CHECK(facts["records"].size() == 5'000);
  CHECK(facts["records_left_out"] == 500);
  CHECK(page.size() < 3'000'000);
}

TEST_CASE("candidates past the limit are left out by whole records, and their number is given") {
  const Command command;
  {
    const auto file = store::File::open(command.path("many.kiln"), store::Access::read_write);
    std::vector<store::Record> records;
    store::Record pattern = kiln::testing::tuned({"rows=1", "cols=8", "dtype=bf16"}).record;
    for (int i = 0; i < 40'000; ++i)
      pattern.candidates.push_back(kiln::testing::candidate(pattern, 1000 + i, "threads=" + std::to_string(i)));
    for (int i = 1; i <= 4; ++i) {
      records.push_back(pattern);
      records.back().key = "record " + std::to_string(i);
    }
    file->put_all(records, {});
  }
  const Json facts = facts_in(report_of(command, "--base '" + command.path("many.kiln") + "'"));
  CHECK(facts["records"][1]["trials"]["costs_ns"].size() == 40'000);
  CHECK_FALSE(facts["records"][2].contains("trials"));
  CHECK(facts["candidates_unread"] == 2);
}

TEST_CASE(
    "the JSON block holds no markup and only ASCII, and gives back each text; bytes that are not UTF-8 become U+FFFD") {
  const auto back = [](const std::string& text) {
    const std::string data = data_of(page_of({{"text", text}}));
    CHECK(std::all_of(data.begin(), data.end(), [](char c) { return c >= 0x20 && c < 0x7F && c != '<'; }));
    return Json::parse(data)["text"].get<std::string>();
  };
  for (const std::string text :
       {"a<b>&\"'", "</script>", "<!--<script>", "\xE2\x80\xA8\xE2\x80\xA9", "µ–𝛼", "\t\n\x01\x7F"})
    CHECK(back(text) == text);
  CHECK(back(std::string("a\0b", 3)) == std::string("a\0b", 3));
  CHECK(back("\xC0\xBC"
             "script") == "\xEF\xBF\xBD\xEF\xBF\xBDscript");              // an overlong '<'
  CHECK(back("\xED\xA0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
}

TEST_CASE("a clipped text ends between characters; the policy names text by its SHA-256") {
  CHECK(clipped("µµµ", 3) == "µ…");
  CHECK(policy_hash("") == "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
}

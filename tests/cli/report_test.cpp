// kiln report: what stands in the page. What a browser makes of it is in tests/page.
#include <sstream>

#include "cli/command.hpp"
#include "cli/report/axis.hpp"
#include "cli/report/html.hpp"
#include "cli/report_file.hpp"

using namespace kiln;
using namespace kiln::cli::report;
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

std::string page_of(const Command& command, const std::string& more = {}) {
  kiln::testing::write_report_file(command.path("base.kiln"));
  const auto ran =
      command.run("report -o '" + command.path("page.html") + "' --base '" + command.path("base.kiln") + "' " + more);
  CHECK_MESSAGE(ran.status == 0, ran.errors);
  return read_file(command.path("page.html"));
}

}  // namespace

TEST_CASE("a report shows records, curves, candidates, rates, uses, what is stale and what is missing") {
  const Command command;
  const std::string page = page_of(command);
  for (const char* section : {"summary", "records", "length", "candidates", "roofline", "attention"})
    CHECK_MESSAGE(has(page, "<section id=\"" + std::string(section) + "\""), std::string(section));
  CHECK(has(page, "<b>7</b>"));                                      // records
  CHECK(has(page, "rows=256: 24.57 µs, default 36.85 µs (1.50×)"));  // a mark of the curve
  CHECK(has(page, "rows=192: 19.65 µs · "));                         // one of the same bucket, by its candidates' times
  CHECK(has(page, "1 wrong result"));
  CHECK(has(page, "<td>hit: a plan in memory<td class=\"r\">900"));
  CHECK(has(page, "the sources have changed"));
  CHECK(has(page, "no such op, or device class, here"));
  CHECK(has(
      page,
      "rows=131072 cols=4096 dtype=bf16 residual=none quantise=none<td class=\"r\">77<td class=\"r\">2"));  // both sizes, one bucket
  CHECK_FALSE(has(page, "rows=16 cols=4096 dtype=bf16 residual=none quantise=none<td class=\"r\">500"));  // not missing
  CHECK(has(page, "4.3 TB/s DRAM"));
}

TEST_CASE(
    "text from a file is text in the page, whatever it says, and the page's policy lets only its own script run") {
  const Command command;
  const std::string page = page_of(command);
  CHECK(count(page, "<script") == 1);  // the page's own
  CHECK(count(page, "<img") == 0);
  CHECK(count(page, "&lt;script&gt;window.pwned = true&lt;/script&gt;") > 5);
  CHECK(has(page, "default-src 'none'; style-src 'sha256-"));
  CHECK(has(page, "script-src 'sha256-"));
  CHECK_FALSE(has(page, "unsafe-inline"));
  CHECK_FALSE(has(page, " style="));  // the policy would not let it
}

TEST_CASE("a report asks for nothing from outside") {
  const Command command;
  const std::string page = page_of(command);
  for (const char* reference : {"http://", "https://", "src=\"", "@import", "url("})
    CHECK_MESSAGE(!has(page, reference), std::string(reference));
}

TEST_CASE("the same files give the same report, from text as from a .kiln file but for their names") {
  const Command command;
  const std::string first = page_of(command);
  CHECK(
      command.run("report -o '" + command.path("again.html") + "' --base '" + command.path("base.kiln") + "'").status ==
      0);
  CHECK_MESSAGE(read_file(command.path("again.html")) == first, "the pages differ");
  const auto exported =
      command.run("cache export '" + command.path("base.kiln") + "' --text -o '" + command.path("base.jsonl") + "'");
  CHECK_MESSAGE(exported.status == 0, exported.errors);
  CHECK(
      command.run("report -o '" + command.path("text.html") + "' --base '" + command.path("base.jsonl") + "'").status ==
      0);
  const std::string text = read_file(command.path("text.html"));
  CHECK(has(text, "base.jsonl"));
  CHECK(has(text, "rows=256: 24.57 µs, default 36.85 µs"));
}

TEST_CASE("a report can be of one op or one device class; a device whose roof is not known has none drawn") {
  const Command command;
  const std::string page = page_of(command, std::string("--device-class ") + kiln::testing::h100);
  CHECK(has(page, "<b>1</b>"));
  CHECK(has(page, "roof is not known to Kiln"));
  CHECK_FALSE(has(page, "class=\"roof\""));
  CHECK(has(
      page,
      "rows=16 cols=4096 dtype=bf16 residual=none quantise=none<td class=\"r\">500"));  // of this device there is none
  CHECK_FALSE(has(page_of(command, "--op rms_norm"), "evil"));
  check_refused(command.run("report -o x.html --op rms_nrom"), 2, "did you mean 'rms_norm'");
  check_refused(command.run("report -o x.html --device-class fast"), 2, "does not parse");
}

TEST_CASE("a report of empty files says what there is not") {
  const Command command;
  CHECK(command.run("report -o '" + command.path("page.html") + "'").status == 0);
  const std::string page = read_file(command.path("page.html"));
  CHECK(has(page, "There is no record to show"));
  CHECK(has(page, "No launches were counted"));
  CHECK(has(page, "there is no curve to draw"));
}

TEST_CASE("a report of thousands of records leaves out what would make it unusable, and says so") {
  const Command command;
  {
    const auto file = store::File::open(command.path("many.kiln"), store::Access::read_write);
    std::vector<store::Record> records;
    const store::Record pattern = kiln::testing::tuned({"rows=1", "cols=8", "dtype=bf16"}).record;
    for (int i = 1; i <= 2500; ++i) {
      records.push_back(pattern);
      records.back().key += std::to_string(i);
    }
    file->put_all(records, {});
  }
  CHECK(
      command.run("report -o '" + command.path("page.html") + "' --base '" + command.path("many.kiln") + "'").status ==
      0);
  const std::string page = read_file(command.path("page.html"));
  CHECK(has(page, "500 records are left out here"));
  CHECK(page.size() < 3'000'000);
}

TEST_CASE("escaped text holds no markup, no controls and only UTF-8; a clipped one ends between characters") {
  CHECK(escaped("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#39;");
  CHECK(escaped(std::string_view("a\0b", 3)) ==
        "a\xEF\xBF\xBD"
        "b");
  CHECK(escaped("\xC0\xBC"
                "script") == "\xEF\xBF\xBD\xEF\xBF\xBDscript");              // an overlong '<'
  CHECK(escaped("\xED\xA0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  CHECK(escaped("µ–𝛼") == "µ–𝛼");
  CHECK(clipped("µµµ", 3) == "µ…");
  CHECK(policy_hash("") == "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
}

TEST_CASE("axes name round values, few of them, however wide the range") {
  const auto values = [](const std::vector<Tick>& ticks) {
    std::vector<double> named;
    for (const Tick& tick : ticks)
      if (tick.named) named.push_back(tick.value);
    return named;
  };
  CHECK(values(decimal_ticks({1.5, 30})) == std::vector<double>{2, 5, 10, 20});
  CHECK(values(binary_ticks({1, 16384}, 8)) == std::vector<double>{1, 4, 16, 64, 256, 1024, 4096, 16384});
  CHECK(decimal_ticks({1e-300, 1e300}).size() < 20);
  CHECK(binary_ticks({1, 1e18}, 8).size() <= 9);
  CHECK(LogAxis({1, 100}, 0, 200).at(10) == doctest::Approx(100));
  CHECK(short_length(131072) == "128Ki");
  CHECK(short_rate(4.3e12, "B") == "4.3 TB/s");
}

// The page that kiln report writes, as a browser shows it.
#include "cli/command.hpp"
#include "cli/report_file.hpp"
#include "page/browser.hpp"

using kiln::testing::Browser;
using kiln::testing::Command;

namespace {

/// A browser, and a command whose reports it opens.
struct Desk {
  Desk() { browser.resize(1280, 900); }
  void open(const std::string& arguments) {
    const auto ran = command.run("report -o '" + command.path("page.html") + "' " + arguments);
    REQUIRE_MESSAGE(ran.status == 0, ran.errors);
    browser.open(command.path("page.html"));
  }
  [[nodiscard]] std::vector<std::string> texts(const std::string& selector) {
    return browser.evaluate("Array.from(document.querySelectorAll('" + selector +
                            "'), (each) => each.textContent.trim())");
  }
  /// The rows of a table, their cells' texts separated by " | ".
  [[nodiscard]] std::vector<std::string> rows(const std::string& table) {
    return browser.evaluate("Array.from(document.querySelectorAll('" + table +
                            " tbody tr'), (row) => Array.from(row.cells, (each) => each.textContent).join(' | '))");
  }
  [[nodiscard]] nlohmann::json number_of(const std::string& selector) {
    return browser.evaluate("document.querySelectorAll('" + selector + "').length");
  }
  Command command;
  Browser browser;
};

/// A report with something in every part.
struct Scene : Desk {
  explicit Scene(const std::string& more = {}) {
    kiln::testing::write_report_file(command.path("base.kiln"));
    open("--base '" + command.path("base.kiln") + "' " + more);
  }
};

bool has(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& each) { return each.find(part) != std::string::npos; });
}

bool has_note(Desk& desk, const std::string& part) { return has(desk.texts(".note"), part); }

/// The value that a column of the records' table sorts by, of the rows that show, from above.
std::string column(int index) {
  return "Array.from(document.querySelectorAll('#records-table tbody tr:not([hidden])'), (row) => Number(row.cells[" +
         std::to_string(index) + "].dataset.v))";
}

}  // namespace

TEST_CASE("every part of the report shows, without a complaint, and nothing that a file says runs") {
  Scene scene;
  const std::vector<std::string> headings = scene.texts("section > h2");
  CHECK(headings == std::vector<std::string>{"Summary", "Records by op and device", "Time against length", "Candidates",
                                             "Roofline", "Stale and missing"});
  const nlohmann::json empty = scene.browser.evaluate(
      "Array.from(document.querySelectorAll('section, .chart, .strip, .bar')).filter((each) => each.getClientRects().length > 0 && "
      "each.getBoundingClientRect().height < 5).length");
  CHECK(empty == 0);
  CHECK(scene.number_of("#length .chart .mark") == 7);     // four buckets, three of them timed at another length too
  CHECK(scene.number_of("#roofline .chart .mark") == 12);  // six records, twice
  CHECK(scene.browser.evaluate("typeof window.pwned") == "undefined");
  CHECK(scene.number_of("img") == 0);
  CHECK(scene.number_of("script") == 2);  // the facts and the page's own
  CHECK_MESSAGE(scene.browser.problems().empty(), nlohmann::json(scene.browser.problems()).dump());
}

TEST_CASE("the sections say of each record what the file says") {
  Scene scene;
  for (const char* section : {"summary", "records", "length", "candidates", "roofline", "attention"})
    CHECK_MESSAGE(scene.number_of("section#" + std::string(section)) == 1, std::string(section));
  CHECK(scene.texts(".tile b") == std::vector<std::string>{"7", "3", "1.26×", "16", "1", "1"});
  CHECK(has(scene.texts("#length .mark title"), "rows=256: 24.57 µs, default 36.85 µs (1.50×) · block_row "));
  CHECK(has(scene.texts("#length .mark title"),
            "rows=192: 19.65 µs · "));  // of the same bucket, by its candidates' times
  CHECK(has(scene.rows("#length .figure"), "256 | 24.57 µs | 36.85 µs | block_row "));
  CHECK(has(scene.rows(".strips"), "rows=256"));
  CHECK(has(scene.rows(".strips"), "24.57 µs | 1.50× | 3 | 1 wrong result"));
  CHECK(has(scene.texts(".strips .strip title"),
            "3 candidates timed, 24.57 µs to 73.69 µs; the winner 24.57 µs, the default 36.85 µs"));
  CHECK(has(scene.rows("#uses"), "hot | hit: a plan in memory | 900 | 89.9 %"));
  CHECK(has(scene.rows("#uses"), "nearest | fallback: no record of the bucket | 100 | 10.0 %"));
  CHECK(has(scene.rows("#uses"), "absent | a look-up's miss | 7 | 100.0 %"));
  CHECK(has(scene.rows("#files"), "base.kiln | base | 7 | 19 | "));
  CHECK(has(scene.rows("#stale"), "the sources have changed"));
  CHECK(has(scene.rows("#stale"), "no such op, or device class, here"));
  CHECK(scene.rows("#missing") ==
        std::vector<std::string>{"rms_norm | rows=131072 cols=4096 dtype=bf16 residual=none quantise=none | 77 | 2"});
  CHECK(has(scene.texts("#roofline .roof-label"), "4.3 TB/s DRAM"));
  CHECK(has_note(scene, "1 counted problems belong to no op that is loaded here."));
}

TEST_CASE("what a file says is shown as text, controls as U+FFFD, long text cut between characters") {
  Scene scene;
  const std::string hostile = nlohmann::json(kiln::testing::hostile).dump();
  CHECK(scene.browser.evaluate(
            "Array.from(document.querySelectorAll('td, small')).filter((each) => each.textContent === " + hostile +
            ").length") > 5);
  CHECK(scene.browser.evaluate("html('p', {title: 'a\\0\\x7fb'}, 'a\\0b\\n\\tc<b>').outerHTML") ==
        "<p title=\"a\uFFFD\uFFFD"
        "b\">a\uFFFD"
        "b  c&lt;b&gt;</p>");
  CHECK(scene.browser.evaluate("clip('𝛼𝛼𝛼', 2)") == "𝛼𝛼…");
}

TEST_CASE("charts, strips and tables have names for those who do not see them") {
  Scene scene;
  CHECK(scene.number_of(".chart") == 5);
  CHECK(scene.number_of(".chart[role=group][aria-label*=\"numbers\"]") == 5);
  CHECK(scene.number_of(".mark[role=img] > title") == 19);
  CHECK(scene.number_of(".strip[role=img] > title") == 4);
  CHECK(scene.number_of(".scroll:not([role=region][aria-label][tabindex])") == 0);
  CHECK(scene.number_of("table") == scene.number_of("table > thead th[scope=col]:first-child"));
  CHECK(scene.number_of("tbody tr") == scene.number_of("tbody th[scope=row]"));
  CHECK(scene.number_of(".key:not([aria-hidden])") == 0);
  CHECK(scene.browser.evaluate("Array.from(document.querySelectorAll('section'), (each) => "
                               "document.getElementById(each.getAttribute('aria-labelledby')).tagName).join()") ==
        "H2,H2,H2,H2,H2,H2");
}

TEST_CASE("a report of one device class shows no more, and draws no roof that is not known") {
  Scene scene(std::string("--device-class ") + kiln::testing::h100);
  CHECK(scene.texts(".tile b").front() == "1");
  CHECK(has_note(scene, "roof is not known to Kiln"));
  CHECK(scene.number_of(".roof") == 0);
  CHECK(has(scene.rows("#missing"),
            "rows=16 cols=4096 dtype=bf16 residual=none quantise=none | 500"));  // of this device there is none
}

TEST_CASE("a report of a workload shows its gaps, and which Kiln wrote the page") {
  Desk desk;
  const std::string workload = desk.command.path(
      "w.toml",
      "[[workload]]\nop = \"rms_norm\"\naxes = { rows = \"1..1024\", cols = 4096 }\ntypes = { dtype = \"bf16\" }\n");
  desk.open("--device-class H200 --workload '" + workload + "'");
  CHECK(desk.rows("#gaps") ==
        std::vector<std::string>{"rms_norm | rows=1..1024 cols=4096 dtype=bf16, 11 buckets | H200"});
  CHECK(has(desk.texts("#newest"), "By kiln 0."));
}

TEST_CASE("a report of empty files says what there is not") {
  Desk desk;
  desk.open("");
  for (const char* words : {"There is no record to show", "No launches were counted", "there is no curve to draw",
                            "These files hold no candidates", "No record belongs to an op",
                            "Every record was tuned from the present sources", "No file holds a histogram"})
    CHECK_MESSAGE(has_note(desk, words), std::string(words));
  CHECK(desk.number_of("table") == 1);  // of the files
  CHECK_MESSAGE(desk.browser.problems().empty(), nlohmann::json(desk.browser.problems()).dump());
}

TEST_CASE("a report of thousands of records leaves out rows, and says so") {
  Desk desk;
  {
    const auto file = kiln::store::File::open(desk.command.path("many.kiln"), kiln::store::Access::read_write);
    std::vector<kiln::store::Record> records;
    const kiln::store::Record pattern = kiln::testing::tuned({"rows=1", "cols=8", "dtype=bf16"}).record;
    for (int i = 1; i <= 2500; ++i) {
      records.push_back(pattern);
      records.back().key = "record " + std::to_string(i);
    }
    file->put_all(records, {});
  }
  desk.open("--base '" + desk.command.path("many.kiln") + "'");
  CHECK(desk.number_of("#records-table tbody tr") == 2000);
  CHECK(has_note(desk, "500 records are left out here: --op and --device-class narrow the report"));
  CHECK(desk.number_of("#stale tbody tr") == 200);
  CHECK(has_note(desk, "2,300 records are left out here"));
}

TEST_CASE("axes name round values, few of them, however wide the range") {
  Scene scene;
  const auto value = [&](const std::string& expression) { return scene.browser.evaluate(expression); };
  const std::string named = ".filter((each) => each.named).map((each) => each.value)";
  CHECK(value("decimalTicks({low: 1.5, high: 30})" + named) == nlohmann::json{2, 5, 10, 20});
  CHECK(value("binaryTicks({low: 1, high: 16384}, 8)" + named) == nlohmann::json{1, 4, 16, 64, 256, 1024, 4096, 16384});
  CHECK(value("decimalTicks({low: 1e-300, high: 1e300}).length") < 20);
  CHECK(value("binaryTicks({low: 1, high: 1e18}, 8).length") <= 9);
  CHECK(value("logAxis({low: 1, high: 100}, 0, 200).at(10)").get<double>() == doctest::Approx(100));
  CHECK(value("shortLength(131072)") == "128Ki");
  CHECK(value("shortRate(4.3e12, 'B')") == "4.3 TB/s");
}

TEST_CASE("without scripts the page says that it needs them, and shows no empty section") {
  Scene scene;
  CHECK(scene.browser.evaluate("document.querySelector('header').innerText.includes('needs scripts')") == false);
  scene.browser.disable_scripts();
  scene.browser.open(scene.command.path("page.html"));
  CHECK(scene.browser.evaluate("document.querySelector('header').innerText.includes('This page needs scripts')") ==
        true);
  CHECK(scene.browser.evaluate("document.querySelector('main').getClientRects().length") == 0);
}

TEST_CASE("the policy keeps a script that is not the page's own from running") {
  Scene scene;
  scene.browser.evaluate(
      "(() => { const script = document.createElement('script'); script.textContent = 'window.injected = true'; "
      "document.body.append(script); })()");
  CHECK(scene.browser.evaluate("typeof window.injected") == "undefined");
}

TEST_CASE("the table of records sorts by a heading, and back by the same one") {
  Scene scene;
  const std::string press = "document.querySelectorAll('#records-table thead button')[2].click()";  // Time
  scene.browser.evaluate(press);
  std::vector<double> times = scene.browser.evaluate(column(2));
  CHECK(times.size() == 7);
  CHECK(std::is_sorted(times.begin(), times.end()));
  CHECK(times.front() < times.back());
  scene.browser.evaluate(press);
  times = scene.browser.evaluate(column(2)).get<std::vector<double>>();
  CHECK(std::is_sorted(times.rbegin(), times.rend()));
  CHECK(scene.browser.evaluate("document.querySelectorAll('#records-table th')[2].getAttribute('aria-sort')") ==
        "descending");
}

TEST_CASE("the table of records shows the rows that hold every word, and says how many") {
  Scene scene;
  scene.browser.evaluate(
      "(() => { const search = document.querySelector('.controls input'); search.value = 'rms_norm ROWS=256'; "
      "search.dispatchEvent(new Event('input', { bubbles: true })); })()");
  CHECK(scene.browser.evaluate(column(2)).size() == 1);
  CHECK(scene.texts(".controls output") == std::vector<std::string>{"1 of 7 records"});
}

TEST_CASE("a mark that has the focus says what it is, and arrow keys reach the next one") {
  Scene scene;
  scene.browser.evaluate("document.querySelector('#length .chart .mark').focus()");
  const std::string readout = "document.querySelector('#length .readout').textContent";
  CHECK(scene.browser.evaluate(readout).get<std::string>().starts_with("rows=1: 8.500 µs"));
  scene.browser.evaluate(
      "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }))");
  CHECK(scene.browser.evaluate(readout).get<std::string>().starts_with("rows=12: 11.56 µs"));
  CHECK(scene.number_of("#length .mark[tabindex=\"0\"]") == 1);
}

TEST_CASE("the page fits a phone, and follows a preference for the dark") {
  Scene scene;
  scene.browser.resize(390, 800);
  CHECK(scene.browser.evaluate("document.documentElement.scrollWidth") == 390);
  const std::string background = "getComputedStyle(document.body).backgroundColor";
  const auto light = scene.browser.evaluate(background);
  scene.browser.prefer("dark");
  CHECK(scene.browser.evaluate(background) != light);
}

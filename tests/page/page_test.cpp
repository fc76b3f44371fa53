// The page that kiln report writes, as a browser shows it.
#include "cli/command.hpp"
#include "cli/report_file.hpp"
#include "page/browser.hpp"

using kiln::testing::Browser;
using kiln::testing::Command;

namespace {

/// A browser that has opened a report with something in every part.
struct Scene {
  Scene() {
    kiln::testing::write_report_file(command.path("base.kiln"));
    const auto ran =
        command.run("report -o '" + command.path("page.html") + "' --base '" + command.path("base.kiln") + "'");
    REQUIRE_MESSAGE(ran.status == 0, ran.errors);
    browser.resize(1280, 900);
    browser.open(command.path("page.html"));
  }
  [[nodiscard]] std::vector<std::string> texts(const std::string& selector) {
    return browser.evaluate("Array.from(document.querySelectorAll('" + selector +
                            "'), (each) => each.textContent.trim())");
  }
  Command command;
  Browser browser;
};

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
  CHECK(scene.browser.evaluate("document.querySelectorAll('#length .chart .mark').length") ==
        7);  // four buckets, three of them timed at another length too
  CHECK(scene.browser.evaluate("document.querySelectorAll('#roofline .chart .mark').length") ==
        12);  // six records, twice
  CHECK(scene.browser.evaluate("typeof window.pwned") == "undefined");
  CHECK_MESSAGE(scene.browser.problems().empty(), nlohmann::json(scene.browser.problems()).dump());
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
  CHECK(scene.browser.evaluate("document.querySelectorAll('#length .mark[tabindex=\"0\"]').length") == 1);
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

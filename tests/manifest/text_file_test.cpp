#include "manifest/text_file.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

#include "kiln/error.hpp"

using namespace kiln;
using namespace kiln::manifest;

TEST_CASE("lines of any length up to the most are read as they are") {
  std::vector<std::string> lines;
  std::string text;
  for (const int length : {0, 1, 4094, 4095, 4096, 8190, 8191, 10000, 0, 3}) {
    const auto size = static_cast<std::size_t>(length);
    lines.emplace_back(size, 'x');
    if (size > 2) lines.back()[1] = '\x01';
    text += lines.back() + "\n";
  }
  for (const char* end : {"", "last"}) {
    std::istringstream from(text + end);
    std::string line;
    for (const std::string& each : lines) {
      REQUIRE(read_line(from, line, 10000, "a", 1));
      CHECK(line == each);
    }
    CHECK(read_line(from, line, 10000, "a", 1) == (*end != '\0'));
    CHECK(line == end);
    CHECK(!read_line(from, line, 10000, "a", 1));
  }
}

TEST_CASE("a line with a NUL is refused by name and number") {
  for (const std::size_t before : {std::size_t{0}, std::size_t{3}, std::size_t{4095}, std::size_t{9000}}) {
    std::istringstream from(std::string(before, 'x') + '\0' + "rest\n");
    std::string line;
    CHECK_THROWS_WITH_AS(
        read_line(from, line, 10000, "a.jsonl", 7),
        "a.jsonl:7: found a NUL byte, which no text holds; is this another kind of file, was it cut, or is it UTF-16?",
        Error);
  }
}

TEST_CASE("a line past the most is refused by name and number") {
  for (const std::size_t size : {std::size_t{11}, std::size_t{5000}, std::size_t{100000}}) {
    std::istringstream from(std::string(size, 'x') + "\n");
    std::string line;
    CHECK_THROWS_WITH_AS(read_line(from, line, 10, "a.jsonl", 7),
                         "a.jsonl:7: the line has more than 10 bytes, the most that is read", Error);
  }
}

TEST_CASE("a read that fails is an error, and not the end of the text") {
  struct Failing : std::streambuf {
    std::string text;
    explicit Failing(std::string before) : text(std::move(before)) {
      setg(text.data(), text.data(), text.data() + text.size());
    }
    int_type underflow() override { throw std::runtime_error("EIO"); }
  };
  for (const std::size_t before : {std::size_t{0}, std::size_t{7}, std::size_t{4095}, std::size_t{5000}}) {
    Failing buffer("one\n" + std::string(before, 'x'));
    std::istream from(&buffer);
    std::string line;
    REQUIRE(read_line(from, line, 10000, "a.trace", 1));
    CHECK_THROWS_WITH_AS(read_line(from, line, 10000, "a.trace", 2), "'a.trace' cannot be read to its end", Error);
  }
}

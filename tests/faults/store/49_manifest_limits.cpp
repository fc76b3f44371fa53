#include <chrono>
#include <fstream>

#include "faults/sanitizer.hpp"
#include "faults/tally.hpp"
#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/limits.hpp"
#include "store/support.hpp"

namespace kiln::manifest {
namespace {

namespace fs = std::filesystem;
using store::contains;
using store::Folder;

const fs::path good_op = fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale";

template <class Piece>
std::string repeated(int count, const Piece& piece) {
  std::string text;
  for (int i = 0; i < count; ++i) text += piece(i);
  return text;
}
std::string number(int i) { return std::to_string(i); }

/// A text that stands in place of another in a file of the op.
struct Excess {
  std::string name;
  const char* file;
  std::string from, to;
  const char* said;  // after the file's path
};

std::vector<Excess> excesses() {
  const auto dotted = [](int parts) { return "a" + repeated(parts - 1, [](int) { return ".a"; }); };
  const auto behind = [](const std::string& text) { return "[cost]\n" + text + "\n"; };
  const std::string hidden = "x = [{a = \'\'\'b\'\'\'\', " + dotted(20000) + " = 1}]";
  const std::string around = "x = [{a = \"\"\"\\\"\"\"\"\"\", " + dotted(20000) + " = 1}]";
  return {
      {"a key of 20,000 parts", "op.toml", "[cost]\n", behind(dotted(20000) + " = 1"), ":35: found a key of many"},
      {"a heading of as many", "op.toml", "[cost]\n", "[" + dotted(20000) + "]\n[cost]\n", ":34: found a key of many"},
      {"the same with spaces and quotes", "op.toml", "[cost]\n",
       behind("'a'" + repeated(20000, [](int) { return " . \"b\""; }) + " = 1"), ":35: found a key of many"},
      {"the same behind a text of five quotes", "op.toml", "[cost]\n", behind(hidden), ":35: found a key of many"},
      {"the same behind an escaped quote", "op.toml", "[cost]\n", behind(around), ":35: found a key of many"},
      {"lists of lists", "op.toml", "[cost]\n", behind("x = " + std::string(20000, '[') + std::string(20000, ']')),
       ":35: found lists and tables deep"},
      {"tables of tables", "op.toml", "[cost]\n",
       behind("x = " + repeated(100, [](int) { return "{ a.a = "; }) + "1" + std::string(100, '}')),
       ":35: found lists and tables deep"},
      {"a type of 100,000 words", "op.toml", "[\"f32\", \"bf16\"]",
       "[" + repeated(60000, [](int i) { return "\"w" + number(i) + "\","; }) + "]", ":1: the file has more than"},
      {"a type of 30,000 words", "op.toml", "[\"f32\", \"bf16\"]",
       "[" + repeated(30000, [](int i) { return "\"w" + number(i) + "\","; }) + "]", ":12: found a list of 30000"},
      {"a parameter of 60,000 values", "tiled.toml", "[64, 128, 256]",
       "[" + repeated(60000, [](int i) { return number(i) + ","; }) + "]", ":5: found a list of 60000"},
      {"a parameter of 2,000,000 values", "tiled.toml", "[64, 128, 256]",
       "[" + repeated(2000000, [](int i) { return number(i) + ","; }) + "]", ":1: the file has more than"},
      {"30,000 parameters", "tiled.toml", "[parameters]\n",
       "[parameters]\n" + repeated(30000, [](int i) { return "p" + number(i) + " = [1]\n"; }),
       ":4: found a table of 30002"},
      {"4,000 parameters", "tiled.toml", "[parameters]\n",
       "[parameters]\n" + repeated(4000, [](int i) { return "p" + number(i) + " = [1]\n"; }), "found 4002 parameters"},
      {"4,000 tensors", "op.toml", "[tensors]\n",
       "[tensors]\n" + repeated(4000, [](int i) { return "t" + number(i) + " = 1\n"; }), "found 4003 tensors"},
      {"4,000 axes", "op.toml", "[axes]\n",
       "[axes]\n" + repeated(4000, [](int i) { return "a" + number(i) + " = 1\n"; }), "found 4002 axes"},
      {"4,000 run-time values", "op.toml", "[runtime]\n",
       "[runtime]\n" + repeated(4000, [](int i) { return "r" + number(i) + " = \"i32\"\n"; }),
       "found 4001 run-time values"},
      {"4,000 terms", "tiled.toml", "[constraints]\n",
       "[terms]\n" + repeated(4000, [](int i) { return "e" + number(i) + " = \"" + "cols + cols + cols + cols\"\n"; }) +
           "[constraints]\n",
       "found 4000 terms"},
      {"200,000 passes", "tiled.toml", "[[pass]]\n", repeated(50000, [](int) { return "[[pass]]\n"; }),
       "found a list of 50000"},
      {"20,000 tables that are named later", "op.toml", "[cost]\n",
       "[cost]\n" + repeated(18000, [](int i) { return "[a" + number(i) + ".b]\n"; }) +
           repeated(18000, [](int i) { return "[a" + number(17999 - i) + "]\n"; }),
       "found many dots in keys"},
  };
}

std::string refusal_of(const fs::path& folder) {
  try {
    load_ops(std::vector<fs::path>{folder});
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

void replace(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text;
  {
    std::ifstream stream(file);
    text.assign(std::istreambuf_iterator<char>(stream), {});
  }
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  std::ofstream(file) << text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("fault 49: a manifest past a limit is refused by file, line and limit, at once") {
  const auto all = excesses();
  for (const Excess& each : all) {
    const Folder folder;
    fs::copy(good_op, folder / "scale");
    replace(folder / "scale" / each.file, each.from, each.to);
    const auto begin = std::chrono::steady_clock::now();
    const std::string refusal = refusal_of(folder / "scale");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    CAPTURE(each.name);
    CHECK_MESSAGE(contains(refusal, (folder / "scale" / each.file).string()), refusal);
    CHECK_MESSAGE(contains(refusal, each.said), refusal);
    CHECK(took.count() < (faults::address_sanitizer ? 20 : 5));  // of an optimised build: a tenth of a second
  }
  faults::tally(49, static_cast<std::int64_t>(all.size()), "manifests past a limit");
}

TEST_CASE("fault 49: what only looks like many parts or deep nesting is read") {
  const Folder folder;
  fs::copy(good_op, folder / "scale");
  const std::string dots(300, '.'), brackets(100, '[');
  replace(folder / "scale" / "op.toml", "\"y = (x + bias) * factor\"",
          "\"\"\"\\\"" + dots + "\"" + brackets + "\n'''\"\"\"\"\"");
  replace(folder / "scale" / "tiled.toml", "\"a block a row, whole vectors\"",
          "'\" " + dots + brackets + "' # " + dots + brackets + " \"");
  CHECK(refusal_of(folder / "scale") == "accepted");
}

TEST_CASE("fault 49: a source past its limit is refused by name, and memory stays bounded") {
  const Folder folder;
  fs::copy(good_op, folder / "scale");
  fs::resize_file(folder / "scale" / "scale.cuh", std::uintmax_t{64} << 30);  // a hole: it takes no room
  CHECK(contains(refusal_of(folder / "scale"), "scale.cuh:1: the file has more than 16777216 bytes"));
  faults::tally(49, 1, "sources past a limit");
}

}  // namespace kiln::manifest

// Parts of manifests: entries that several implementations include.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/kernel_name.hpp"
#include "manifest/variant.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;
using testing::replaced;

namespace {

/// The small op, whose implementation's tables stand in a part, some of them.
struct Parted {
  testing::Folder folder = testing::scale_folder();
  std::vector<SourceFile> others;

  Parted() {
    cut("[parameters]\nthreads = [128, 256, 2048]\nvector  = [2, 4, 8]\n");
    folder.implementation = "include = [\"tile.part.toml\"]\n" + folder.implementation;
    others.push_back({"tile.part.toml",
                      "[parameters]\nthreads = [128, 256, 2048]\nvector  = [2, 4, 8]\n"
                      "[terms]\nbytes = \"vector * sizeof(dtype)\"\n"});
  }
  void cut(std::string_view lines) { folder.implementation = replaced(folder.implementation, lines, ""); }
  void add(std::string_view text) { folder.implementation += text; }
  void set_part(std::string text) { others[0].text = std::move(text); }

  [[nodiscard]] std::vector<SourceFile> files() const {
    std::vector<SourceFile> files = folder.files();
    files.insert(files.end(), others.begin(), others.end());
    return files;
  }
  [[nodiscard]] Op parse() const { return parse_op("scale", "/ops/scale", files()); }
  [[nodiscard]] std::vector<std::string> mistakes() const {
    std::vector<Mistake> mistakes;
    (void)parse_op("scale", "/ops/scale", files(), mistakes);
    std::vector<std::string> texts;
    for (const Mistake& each : mistakes) texts.push_back(testing::text_of(each));
    return texts;
  }
  /// What both readers say first.
  [[nodiscard]] std::string refusal() const {
    const std::vector<std::string> all = mistakes();
    try {
      (void)parse();
    } catch (const Error& error) {
      REQUIRE(!all.empty());
      CHECK(all.front() == error.what());
      return error.what();
    }
    CHECK(all.empty());
    return "accepted";
  }
};

std::vector<std::string> texts_of(const std::vector<Expression>& list) {
  std::vector<std::string> texts;
  for (const Expression& each : list) texts.push_back(each.text());
  return texts;
}

using Names = std::vector<std::string>;

Names parameters_of(const Implementation& implementation) {
  Names names;
  for (const Parameter& each : implementation.parameters) names.push_back(each.name);
  return names;
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a manifest with a part is as one with the part's entries in place, before its own") {
  const Implementation whole = testing::scale_folder().parse().implementations[0];
  const Implementation parted = Parted().parse().implementations[0];
  CHECK(parameters_of(parted) == parameters_of(whole));
  CHECK(parted.parameters[0].values == whole.parameters[0].values);
  CHECK(texts_of(parted.constraints) == texts_of(whole.constraints));
  CHECK(parted.default_config == whole.default_config);
  CHECK(parted.file == "/ops/scale/fast.toml");
  CHECK(parted.parts == Names{"/ops/scale/tile.part.toml"});
  CHECK(whole.parts.empty());
}

TEST_CASE("every table of a part comes before the manifest's, and [pass] is of the first pass") {
  Parted op;
  op.cut("[default]\nthreads = 256\nvector  = 4\n");
  op.cut("block   = [\"threads\"]\n");
  op.set_part(R"toml([parameters]
threads = [128, 256, 2048]
[terms]
bytes = "vector * sizeof(dtype)"
[constraints]
all = ["rows > 1"]
[search]
all = ["threads > 128"]
[align]
y = 16
[default]
threads = 128
[workspace]
spare = { bytes = 64 }
[pass]
block        = ["threads"]
programmatic = true
[pass.model]
operations = "rows"
unit       = "fma"
)toml");
  op.folder.implementation = replaced(op.folder.implementation, "[constraints]", R"toml([parameters]
vector = [2, 4]
[terms]
twice = "2 * bytes"
[search]
all = ["twice > 4"]
[default]
vector = 4
[constraints])toml");
  op.add(
      "[pass.model]\nunit = \"instruction\"\nregisters = 40\n[[pass]]\nkernel = \"rest\"\ngrid = [1]\nblock = [1]\nargs = []\n");
  const Implementation read = op.parse().implementations[0];
  CHECK(parameters_of(read) == Names{"threads", "vector"});
  CHECK(read.default_config == Config{128, 4});
  CHECK(texts_of(read.constraints) ==
        Names{"rows > 1", "vector * sizeof(dtype) <= 16", "threads <= 1024", "cols % vector == 0"});
  CHECK(texts_of(read.search) == Names{"threads > 128", "twice > 4"});
  REQUIRE(read.alignment.size() == 2);
  CHECK(read.alignment[0].second.text() == "16");
  REQUIRE(read.workspaces.size() == 2);
  CHECK(read.workspaces[0].name == "spare");
  REQUIRE(read.passes.size() == 2);
  CHECK(read.passes[0].block[0].text() == "threads");
  CHECK(read.passes[0].programmatic.constant_value() == 1);
  REQUIRE(read.passes[0].model);
  CHECK(read.passes[0].model->operations->text() == "rows");
  CHECK(read.passes[0].model->unit == Unit::instruction);
  CHECK(read.passes[0].model->registers->text() == "40");
  CHECK(!read.passes[1].model);
}

TEST_CASE("whole passes of a part run before the manifest's, whose first [pass] of a part is still of") {
  Parted op;
  op.others.push_back({"passes.part.toml", "\n[[pass]]\nkernel = \"before\"\ngrid = [1]\nblock = [1]\nargs = []\n"});
  op.others.push_back({"entries.part.toml", "[pass]\nprogrammatic = true\n"});
  op.folder.implementation = replaced(op.folder.implementation, "\"tile.part.toml\"",
                                      "\"tile.part.toml\", \"entries.part.toml\", \"passes.part.toml\"");
  const Implementation read = op.parse().implementations[0];
  REQUIRE(read.passes.size() == 2);
  CHECK(read.passes[0].kernel == "before");
  CHECK(read.passes[0].line.number == 2);
  CHECK(*read.passes[0].line.part == "/ops/scale/passes.part.toml");
  CHECK(read.passes[0].programmatic.constant_value() == 0);
  CHECK(read.passes[1].programmatic.constant_value() == 1);
  CHECK(!read.passes[1].line.part);
}

TEST_CASE("a manifest's own entry overrides that of a part, in its place") {
  Parted op;
  op.add("");
  op.folder.implementation = replaced(op.folder.implementation, "[constraints]",
                                      "[parameters]\nlast = [1]\nthreads = [256, 512]\n[terms]\nbytes = \"vector\"\n"
                                      "[constraints]");
  op.folder.implementation = replaced(op.folder.implementation, "[default]", "[default]\nlast = 1");
  const Implementation read = op.parse().implementations[0];
  CHECK(parameters_of(read) == Names{"threads", "vector", "last"});
  CHECK(read.parameters[0].values == std::vector<std::int64_t>{256, 512});
  CHECK(read.symbols.find_term("bytes")->text() == "vector");
}

TEST_CASE("a part may include parts, each once, and overrides what they give") {
  Parted op;
  op.others.push_back({"base.part.toml", "[terms]\nbytes = \"vector\"\nhalf = \"bytes / 2\"\n"});
  op.others.push_back({"other.part.toml", "include = [\"base.part.toml\"]\n[terms]\nthird = \"half / 2\"\n"});
  op.set_part("include = [\"base.part.toml\", \"other.part.toml\"]\n" + op.others[0].text.str());
  const Op read = op.parse();
  CHECK(read.implementations[0].parts ==
        Names{"/ops/scale/tile.part.toml", "/ops/scale/base.part.toml", "/ops/scale/other.part.toml"});
  CHECK(read.implementations[0].symbols.find_term("bytes")->text() == "vector * sizeof(dtype)");
  CHECK(read.implementations[0].symbols.find_term("third") != nullptr);
}

TEST_CASE("a part that the op has comes before one of common/ of the same name") {
  Parted op;
  op.folder.implementation = replaced(op.folder.implementation, "tile.part.toml", "common/tile.part.toml");
  op.others[0].name = "common/tile.part.toml";
  CHECK(op.parse().implementations[0].parts == Names{"templates/common/tile.part.toml"});
  for (const SourceFile& each : common_parts()) CHECK(each.name.starts_with("common/"));
  for (const SourceFile& each : common_headers()) CHECK(each.name.ends_with(".cuh"));
}

TEST_CASE(
    "a part is read from an op's folder on disk, and a change of it reaches the names of kernels of all who include it") {
  const auto name_with = [](std::string_view bytes) {
    Parted op;
    op.set_part(replaced(op.others[0].text.str(), "vector * sizeof(dtype)", bytes));
    op.folder.implementation = replaced(op.folder.implementation, "{vector * 2}", "{bytes}");
    op.others.push_back(
        {"second.toml", replaced(op.folder.implementation, "rows in blocks", "again") + std::string("# second\n")});
    op.others.push_back({"second.cuh", "// second"});
    const Op read = op.parse();
    const Problem problem = make_problem(read, std::vector<Setting>{{"rows", "64"}, {"cols", "64"}, {"dtype", "f32"}});
    Names names;
    for (const Implementation& each : read.implementations)
      for (const std::string& name :
           name_expressions(read, each.passes, each.symbols, default_of(each).frame({read, testing::h200()}, problem)))
        names.push_back(name);
    return names;
  };
  CHECK(name_with("vector * sizeof(dtype)") ==
        Names{"scale_fast<float, 256, 16, Mode::plain>", "scale_fast<float, 256, 16, Mode::plain>"});
  CHECK(name_with("vector + 1") ==
        Names{"scale_fast<float, 256, 5, Mode::plain>", "scale_fast<float, 256, 5, Mode::plain>"});
}

TEST_CASE("what is wrong in a part is told at its own line, once for all who include it") {
  Parted op;
  op.set_part("[parameters]\nthreads = [128, 128]\n\n[terms]\nbytes = \"vectr\"\n[align]\nz = 8\n");
  op.folder.implementation =
      replaced(op.folder.implementation, "[constraints]", "[parameters]\nvector = [4]\n[constraints]");
  op.others.push_back({"second.toml", op.folder.implementation});
  op.others.push_back({"second.cuh", "// second"});
  const std::vector<std::string> said = op.mistakes();
  CAPTURE(said.size());
  const std::string part = "/ops/scale/tile.part.toml:";
  for (const char* each : {"2: found 128 twice in parameter 'threads'",
                           "5: in the term 'bytes': found the unknown name 'vectr'", "7: found 'z' in [align]"}) {
    CAPTURE(std::string(each));
    CHECK(std::count_if(said.begin(), said.end(),
                        [&](const std::string& one) { return one.starts_with(part + each); }) == 1);
  }
}

TEST_CASE("a part that cannot be included is refused at the line that names it, with what to do") {
  struct Case {
    const char* include;
    const char* said;
  };
  for (
      const Case& each : {
          Case{"\"tile.part.toml\"",
               "/ops/scale/fast.toml:1: found 'tile.part.toml' as 'include', expected a list in [ ]"},
          Case{"[3]", "fast.toml:1: found the number 3 as a part in 'include', expected a text"},
          Case{"[\"til.part.toml\"]",
               "fast.toml:1: found no part 'til.part.toml' (did you mean 'tile.part.toml'?), expected"},
          Case{"[\"../tile.part.toml\"]",
               "which is neither the op's nor of common/, expected NAME.part.toml of the op's folder"},
          Case{"[\"/etc/tile.part.toml\"]", "which is neither the op's nor of common/"},
          Case{"[\"common/../tile.part.toml\"]", "which is neither the op's nor of common/"},
          Case{"[\"gemm/tile.part.toml\"]", "which is neither the op's nor of common/"},
          Case{"[\"fast.toml\"]", "found 'fast.toml' in 'include', expected a file that ends in .part.toml"},
          Case{"[\"tile.part.toml\", \"round.part.toml\"]",
               "/ops/scale/round.part.toml:2: found the part 'round.part.toml' in itself, by "
               "/ops/scale/fast.toml, round.part.toml, expected parts that do not include each other in a circle"},
          Case{
              "[\"tile.part.toml\", \"twice.part.toml\"]",
              "/ops/scale/twice.part.toml:2: found 'bytes' of [terms], which /ops/scale/tile.part.toml:5 gives too, expected one"},
          Case{"[\"whole.part.toml\"]",
               "/ops/scale/whole.part.toml:1: found the unknown key 'summary' in a part, expected 'include'"},
          Case{"[\"tile.part.toml\", \"passes.part.toml\"]",
               "/ops/scale/passes.part.toml:1: found no 'grid' in a pass"},
          Case{"[\"broken.part.toml\"]", "/ops/scale/broken.part.toml:2: "},
      }) {
    CAPTURE(std::string(each.said));
    Parted op;
    op.folder.implementation = replaced(op.folder.implementation, "[\"tile.part.toml\"]", each.include);
    op.others.push_back({"round.part.toml", "\ninclude = [\"round.part.toml\"]\n"});
    op.others.push_back({"twice.part.toml", "[terms]\nbytes = \"8\"\n"});
    op.others.push_back({"whole.part.toml", "summary = \"all\"\n[parameters]\nthreads = [256]\nvector = [4]\n"});
    op.others.push_back({"passes.part.toml", "[[pass]]\nkernel = \"rest\"\n"});
    op.others.push_back({"broken.part.toml", "[terms]\nbytes = \n"});
    const std::string said = op.refusal();
    CHECK_MESSAGE(holds(said, each.said), said);
  }
}

TEST_CASE("an include below a table's header, which TOML counts to the table, is named as that alone") {
  for (const char* table : {"[parameters]\n", "[constraints]\n", "[default]\n"}) {
    CAPTURE(table);
    Parted op;
    op.folder.implementation =
        replaced(op.folder.implementation.substr(op.folder.implementation.find('\n') + 1), "[constraints]\n",
                 "[parameters]\nthreads = [128, 256, 2048]\nvector  = [2, 4, 8]\n[constraints]\n");
    op.folder.implementation =
        replaced(op.folder.implementation, table, table + std::string("include = [\"tile.part.toml\"]\n"));
    const std::string name = std::string(table).substr(0, std::string(table).find('\n'));
    CHECK(op.refusal().find("found 'include' in " + name +
                            ", expected it above all tables: the first lines of the file") != std::string::npos);
    CHECK(op.mistakes().size() == 1);
  }
}

TEST_CASE("parts are of implementations, few, and [pass] of a part needs a pass") {
  Parted op;
  op.folder.op = "include = [\"tile.part.toml\"]\n" + op.folder.op;
  CHECK(holds(op.refusal(), "op.toml:1: found the unknown key 'include' in the file"));

  Parted many;
  std::string list;
  for (int i = 0; i <= 16; ++i) {
    const std::string name = "p" + std::to_string(i) + ".part.toml";
    list += (i == 0 ? "\"" : ", \"") + name + "\"";
    many.others.push_back({name, "[terms]\nt" + std::to_string(i) + " = \"1\"\n"});
  }
  many.folder.implementation = replaced(many.folder.implementation, "\"tile.part.toml\"", list);
  CHECK(holds(many.refusal(), "fast.toml:1: found more than 16 parts, expected fewer, larger ones"));

  Parted without;
  without.set_part("[pass]\ngrid = [1]\n");
  without.folder.implementation = "include = [\"tile.part.toml\"]\nsummary = \"none\"\n";
  CHECK(holds(without.refusal(),
              "tile.part.toml:1: found [pass], and no pass in /ops/scale/fast.toml, expected a [[pass]] there"));
}

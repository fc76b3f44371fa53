// A manifest whose `args` are not what its kernel takes: a launch would read past the list, or past an argument.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

/// `from` of a manifest's args, in whose place there is `to`.
struct Mistake {
  std::string name;
  const char* file;
  std::string from, to;
  std::string said;  // with the manifest's line
};

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all = {
      {"a missing one", "tiled.toml", "\"cols\", \"factor\", {", "\"cols\", {",
       "takes 4 bytes as argument 5, and 'length = rows' has 24"},
      {"a missing last one", "scale.cuh", "kiln::axis_length rows)", "kiln::axis_length rows, int more)",
       "tiled.toml:19: the kernel scale_tiled<{dtype}, {threads}, {vector}> takes 7 arguments, and 'args' has 6: argument 7 of "
       "4 bytes is missing"},
      {"none but one", "tiled.toml", "[{ view = \"x\" }, \"bias\", \"y\", \"cols\", \"factor\", {", "[{",
       "takes 16 bytes as argument 1, and 'length = rows' has 24"},
      {"one too many", "tiled.toml", "{ length = \"rows\" }]", "{ length = \"rows\" }, \"stride\"]",
       "takes 6 arguments, and 'args' has 7: argument 7, 'stride', is one too many"},
      {"a narrow one", "tiled.toml", "\"cols\", \"factor\"", "{ value = \"cols + 0\", type = \"i32\" }, \"factor\"",
       "takes 8 bytes as argument 4, and 'cols + 0' has 4"},
      {"a wide one", "tiled.toml", "\"factor\", { length", "\"cols\", { length",
       "takes 4 bytes as argument 5, and 'cols' has 8"},
      {"a length in place of an axis", "tiled.toml", "\"cols\", \"factor\"", "{ length = \"rows\" }, \"factor\"",
       "takes 8 bytes as argument 4, and 'length = rows' has 24"},
      {"a descriptor in place of an address", "tiled.toml", "[{ view = \"x\" }, \"bias\"",
       "[{ tma = \"x\", box = [1, 64] }, \"bias\"", "takes 16 bytes as argument 1, and 'tma = x' has 128"},
      {"a second pass", "plain.toml", "\"cols\", \"factor\", { length", "\"factor\", \"cols\", { length",
       "plain.toml:13: the kernel scale_plain<{dtype}> takes 8 bytes as argument 4, and 'factor' has 4"},
      {"the reference", "op.toml", "\"stride\", \"factor\"]", "\"stride\"]",
       "op.toml:28: the kernel scale_reference<{dtype}> takes 6 arguments, and 'args' has 5: argument 6 of 4 bytes is missing"},
  };
  return all;
}

bool is_of_default(const Mistake& mistake) {
  return mistake.name != "a second pass" && mistake.name != "the reference";
}

/// What an engine that tunes nothing says of the op, as an error or as a warning.
std::string said_of(const CopiedOp& op, const fs::path& overlay, Stream stream) {
  const Engine engine(op.options(overlay, MissPolicy::nearest));
  std::string said;
  try {
    ScaleCall(engine, 64, 128).launch(stream);
  } catch (const Error& error) {
    said = error.what();
  }
  for (const std::string& warning : engine.warnings()) said += "\n" + warning;
  return said;
}

}  // namespace

TEST_CASE("fault 56: a default whose args its kernel does not take is refused when it is loaded, and never launched") {
  const Machine machine;
  std::int64_t cases = 0;
  for (const Mistake& mistake : mistakes()) {
    if (!is_of_default(mistake)) continue;
    const TemporaryFolder folder;
    const CopiedOp op(folder);
    op.edit(mistake.file, mistake.from, mistake.to);
    const std::int64_t before = query("launches scale_tiled");
    const std::string said = said_of(op, folder / "overlay.kiln", machine.stream());
    CAPTURE(mistake.name);
    CHECK_MESSAGE(contains(said, mistake.said), said);
    CHECK(contains(said, (op.root() / "scale" / "tiled.toml:19").string()));
    CHECK(query("launches scale_tiled") == before);
    ++cases;
  }
  tally(56, cases, "defaults whose arguments are not their kernel's");
}

TEST_CASE("fault 56: so is a candidate of a tune, which goes on with the others, and the reference, which ends it") {
  std::int64_t cases = 0;
  for (const Mistake& mistake : mistakes()) {
    const TemporaryFolder folder;
    const CopiedOp op(folder);
    op.edit("tiled.toml", "threads = [64, 128, 256]", "threads = [64]");
    op.edit(mistake.file, mistake.from, mistake.to);
    const Outcome outcome =
        shell("kiln tune scale rows=64 cols=128 dtype=f32 --json" + op.globals(folder / "overlay.kiln"));
    CAPTURE(mistake.name);
    CHECK_MESSAGE(contains(outcome.output, mistake.said), outcome.output);
    CHECK((outcome.status == 0) == (mistake.name != "the reference"));
    ++cases;
  }
  tally(56, cases, "tunes with arguments that are not their kernel's");
}

TEST_CASE("fault 56: machine code of a file is looked at too") {
  const Machine machine;
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  const fs::path overlay = tuned_overlay(folder);
  op.edit("tiled.toml", "{ length = \"rows\" }]", "{ length = \"rows\" }, \"stride\"]");
  const std::int64_t before = query("launches scale_tiled");
  const std::string said = said_of(op, overlay, machine.stream());
  CHECK_MESSAGE(contains(said, "takes 6 arguments, and 'args' has 7"), said);
  CHECK(query("launches scale_tiled") == before);
  tally(56, 1, "stored kernels whose arguments are others");
}

}  // namespace kiln::faults

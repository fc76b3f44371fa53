// Folders of ops: what is found in them, and what was meant to be one.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "check/skeleton.hpp"
#include "checked_op.hpp"
#include "cuda/nvrtc_api.hpp"
#include "kiln/error.hpp"

using namespace kiln;
using namespace kiln::check;
using namespace kiln::check::testing;

namespace {

namespace fs = std::filesystem;

struct ScratchFolder {
  fs::path path = fs::temp_directory_path() / ("kiln_check_" + std::to_string(getpid()));
  ScratchFolder() { fs::create_directories(path); }
  ~ScratchFolder() { fs::remove_all(path); }
  void write(const fs::path& name, std::string_view text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  void write_op(const std::string& name) const {
    for (const manifest::SourceFile& each : skeleton(name)) write(fs::path(name) / each.name, each.text);
  }
};

}  // namespace

TEST_CASE("each op of a folder is read, and folders that were meant to be ops are named") {
  const ScratchFolder scratch;
  scratch.write_op("scale");
  scratch.write_op("gemm");
  scratch.write("halved/fast.toml", "summary = \"no op.toml\"");
  scratch.write("halved/fast.cuh", "");
  scratch.write("notes/readme.md", "no op");
  scratch.write("include/shared.cuh", "// headers alone");
  Findings findings;
  const std::vector<KnownOp> known = {{"gemm", "built-in"}, {"softmax", "built-in"}};
  const auto ops = read_ops(scratch.path, known, findings);
  REQUIRE(ops.size() == 2);
  CHECK(ops[0].op.name == "gemm");
  CHECK(ops[1].op.name == "scale");
  const auto found = findings.sorted();
  REQUIRE(found.size() == 2);
  CHECK(found[0].file == (scratch.path / "halved").string());
  CHECK(found[0].what == "manifests and sources without op.toml");
  CHECK(found[0].severity == Severity::error);
  CHECK(found[1].file == (scratch.path / "gemm/op.toml").string());
  CHECK(found[1].what ==
        "the op 'gemm' has the name of another, built-in, and the first that is found hides the other");
  CHECK(found[1].severity == Severity::warning);

  scratch.write("misnamed/ops.toml", "[op]\n");
  scratch.write("misnamed/fast.cuh", "");
  Findings of_misnamed;
  static_cast<void>(read_ops(scratch.path, {}, of_misnamed));
  CHECK(of_misnamed.sorted().back().remedy == "rename ops.toml, which has [op], to op.toml");

  Findings of_one;
  CHECK(read_ops(scratch.path / "scale", known, of_one).size() == 1);
  CHECK_THROWS_AS((void)read_ops(scratch.path / "notes", known, of_one), Error);
  CHECK_THROWS_AS((void)read_ops(scratch.path / "missing", known, of_one), Error);
}

TEST_CASE("a file of an op that cannot be read is one mistake, beside those of the others") {
  const ScratchFolder scratch;
  scratch.write_op("scale");
  fs::remove(scratch.path / "scale/scale.cuh");
  fs::create_symlink("/etc/hostname", scratch.path / "scale/scale.cuh");
  scratch.write("scale/second.toml", "summary = 3\n[[pass]]\nkernel = \"scale<{dtype}, 1, 1>\"\n");
  Findings findings;
  const auto ops = read_ops(scratch.path / "scale", {}, findings);
  Settings settings{{h200()}, {}, false, {}};
  static_cast<void>(check_op(ops.at(0), settings, findings));
  const std::string said = text_of(findings);
  CAPTURE(said);
  CHECK(said.find("scale.cuh:1: error: found a link that leaves the op's folder") != std::string::npos);
  CHECK(said.find("second.toml:1: error: found the number 3 as 'summary'") != std::string::npos);
  CHECK(said.find("second.toml:2: error: found no 'grid' in a pass") != std::string::npos);
}

TEST_CASE("a new op has no mistake, and says what a tune chooses from") {
  ReadOp read;
  std::vector<manifest::SourceFile> files = skeleton("scale");
  read.op = manifest::parse_op("scale", "ops/scale", files, read.mistakes);
  Settings settings{{h200(), a100()}, {}, cuda::Nvrtc::find() != nullptr, {}};
  settings.compiles.most = 1;
  Findings findings;
  const Checked checked = check_op(read, settings, findings);
  CHECK(text_of(findings) == "");
  REQUIRE(checked.spaces.size() == 2);
  CHECK(checked.spaces[0].configs == 36);
  CHECK(checked.spaces[0].legal == 36);
}

TEST_CASE("what each condition removes is counted over the whole space, whatever the others remove") {
  Folder folder = row_sums();
  replace(folder, "split.toml", "\"bytes <= 8\"", "\"bytes <= 4\"");
  const ReadOp read = folder.read();
  Findings findings;
  const Checked checked = check_op(read, {{h200()}, {}, false, {}}, findings);
  CHECK(text_of(findings) == "");
  const Space& split = checked.spaces.at(0);
  CHECK(split.implementation == "split");
  CHECK(split.configs == 18);
  CHECK(split.legal == 12);     // vector 1 and 2 of 1, 2 and 4 with bf16
  CHECK(split.searched == 12);  // rows = 4096
  REQUIRE(split.removals.size() == 4);
  CHECK(split.removals[0].removed == 6);
  CHECK(split.removals[0].line == line_of(folder, "split.toml", "bytes <= 4"));
  CHECK(split.removals[1].removed == 0);
  CHECK(split.removals[3].is_search);
}

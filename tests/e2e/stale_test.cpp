// Records tuned from other sources than the present ones: served, said, and renewed when asked to.
#include <fstream>
#include <iterator>

#include "e2e/command.hpp"

namespace e2e {
namespace {

namespace fs = std::filesystem;

/// A copy of the op `scale` whose sources can be edited.
class EditedOp {
 public:
  explicit EditedOp(const TemporaryFolder& folder) : root_(folder / "ops") {
    fs::create_directories(root_);
    fs::copy(fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale", root_ / "scale");
  }
  /// Other sources that compute the same.
  void touch() const { std::ofstream(root_ / "scale/scale.cuh", std::ios::app) << "static_assert(true);\n"; }
  /// The same tokens: with a comment, other line ends and in a file of another name.
  void rewrite() const {
    std::string text = text_of("scale.cuh");
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) text.replace(at, 1, "\r\n\t");
    std::ofstream(root_ / "scale/renamed.cuh") << "// Another comment.\n" << text;
    fs::remove(root_ / "scale/scale.cuh");
    for (const char* name : {"op.toml", "plain.toml", "tiled.toml"}) replace(name, "scale.cuh", "renamed.cuh");
  }
  void remove_vectors() const { replace("tiled.toml", "[1, 4]", "[1]"); }
  [[nodiscard]] std::string globals(const TemporaryFolder& folder) const {
    return " --templates " + root_.string() + " --overlay " + (folder / "overlay.kiln").string() + " ";
  }
  [[nodiscard]] const fs::path& root() const noexcept { return root_; }

 private:
  [[nodiscard]] std::string text_of(const char* name) const {
    std::ifstream in(root_ / "scale" / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void replace(const char* name, std::string_view old, std::string_view with) const {
    std::string text = text_of(name);
    text.replace(text.find(old), old.size(), with);
    std::ofstream(root_ / "scale" / name) << text;
  }

  fs::path root_;
};

void check_renewal(const std::string& said, int records, int stale, int renewed, int unusable) {
  const std::string wanted = R"({"event":"stale","records":)" + std::to_string(records) + R"(,"stale":)" +
                             std::to_string(stale) + R"(,"renewed":)" + std::to_string(renewed) + R"(,"unusable":)" +
                             std::to_string(unusable) + "}";
  CHECK_MESSAGE(contains(said, wanted), said);
}

}  // namespace

TEST_CASE("a stale record serves and is said to be stale; --stale tunes exactly the stale ones again") {
  const TemporaryFolder folder;
  const EditedOp op(folder);
  const std::string at = op.globals(folder);
  expect(0, "kiln tune scale rows=32,64 cols=128 dtype=f32" + at);
  check_renewal(expect(0, "kiln tune --stale --json" + at), 2, 0, 0, 0);
  op.touch();
  {
    const Machine machine;
    kiln::Options chosen = options(folder / "overlay.kiln", kiln::MissPolicy::error);
    chosen.template_paths = {op.root()};
    const kiln::Engine engine(chosen);
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == kiln::Origin::overlay);
    CHECK(engine.stats().stale == 1);
    CHECK(engine.stats().misses.no_cubin == 1);
  }
  CHECK(contains(expect(0, "kiln explain scale rows=64 cols=128 dtype=f32 --json" + at), R"("stale":true)"));
  const std::string next = expect(0, "kiln explain scale rows=64 cols=128 dtype=f32" + at);
  CHECK_MESSAGE(contains(next, "next: tune what is stale again, on a GPU of class "), next);
  CHECK_MESSAGE(contains(next, "kiln tune --stale scale rows=64 cols=128 dtype=f32 --overlay "), next);
  // Only what is named, by op and sizes, and only what is stale.
  expect(2, "kiln tune --stale scail" + at);
  check_renewal(expect(0, "kiln tune --stale scale rows=128..512 cols=128 --json" + at), 2, 0, 0, 0);
  const std::string one = expect(0, "kiln tune --stale scale rows=64,128 cols=128 --json" + at);
  check_renewal(one, 2, 1, 1, 0);
  CHECK(contains(one, R"("bucket":"rows=64 cols=128 dtype=f32","outcome":"tuned")"));
  CHECK(contains(expect(0, "kiln tune --stale" + at), "1 of 2 records of this device is stale, 1 renewed"));
  check_renewal(expect(0, "kiln tune --stale --json" + at), 2, 0, 0, 0);
  CHECK(contains(expect(0, "kiln explain scale rows=64 cols=128 dtype=f32 --json" + at), R"("stale":false)"));
  CHECK(!contains(expect(0, "kiln explain scale rows=64 cols=128 dtype=f32" + at), "kiln tune --stale"));
}

TEST_CASE("a comment, another layout and a file that moved leave records current and machine code in use") {
  const TemporaryFolder folder;
  const EditedOp op(folder);
  const std::string at = op.globals(folder);
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + at);
  op.rewrite();
  check_renewal(expect(0, "kiln tune --stale --json" + at), 1, 0, 0, 0);
  const Machine machine;
  kiln::Options chosen = options(folder / "overlay.kiln", kiln::MissPolicy::error);
  chosen.template_paths = {op.root()};
  const kiln::Engine engine(chosen);
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == kiln::Origin::overlay);
  CHECK(engine.stats().stale == 0);
  CHECK(engine.stats().compiles == 0);
}

TEST_CASE("a stale record of a base is renewed into the overlay, and one that cannot serve is counted apart") {
  const TemporaryFolder folder;
  const EditedOp op(folder);
  const std::string at = op.globals(folder);
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + at);
  const std::string base = (folder / "base.kiln").string();
  fs::rename(folder / "overlay.kiln", base);
  op.touch();
  const std::string with_base = " --base " + base + at;
  check_renewal(expect(0, "kiln tune --stale --json" + with_base), 1, 1, 1, 0);
  check_renewal(expect(0, "kiln tune --stale --json" + with_base), 1, 0, 0, 0);
  CHECK(contains(expect(0, "kiln cache ls" + at), "1 record"));
  op.remove_vectors();  // the winner's config is declared no longer
  check_renewal(expect(0, "kiln tune --stale --json" + at), 1, 0, 0, 1);
  CHECK(contains(expect(0, "kiln explain scale rows=64 cols=128 dtype=f32 --json" + at), R"("miss":"unusable")"));
}

TEST_CASE("--stale is of one device and one regime") {
  const TemporaryFolder folder;
  const EditedOp op(folder);
  const std::string at = op.globals(folder);
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + at);
  op.touch();
  check_renewal(expect(0, "FAKE_CUDA='sm 80' kiln tune --stale --json" + at), 0, 0, 0, 0);
  check_renewal(expect(0, "kiln tune --stale --hot-l2 --json" + at), 0, 0, 0, 0);
  expect(2, "kiln tune --stale --force" + at);
  check_renewal(expect(0, "kiln tune --stale --json" + at), 1, 1, 1, 0);
}

}  // namespace e2e

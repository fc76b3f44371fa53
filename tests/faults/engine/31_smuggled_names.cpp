// What a manifest writes reaches the compiler only as integers and declared names.
#include <fmt/format.h>
#include <rapidcheck.h>

#include "faults/engine/fixture.hpp"
#include "manifest/kernel_name.hpp"

namespace kiln::faults {
namespace {

using Files = std::vector<manifest::SourceFile>;

Files scale_files() {
  Files files;
  for (const auto& entry : fs::directory_iterator(fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale"))
    files.push_back({entry.path().filename().string(), read(entry.path())});
  return files;
}

/// The files with `from` replaced, everywhere in one of them.
Files with(Files files, const std::string& name, const std::string& from, const std::string& to) {
  for (manifest::SourceFile& file : files) {
    if (file.name != name) continue;
    std::string text = file.text.str();
    REQUIRE(text.find(from) != std::string::npos);
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    file.text = text;
  }
  return files;
}

/// As TOML writes a text.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result + "\"";
}

/// Every name expression that the op can come to, at its smallest and its largest problem.
std::vector<std::string> all_name_expressions(const manifest::Op& op) {
  std::vector<std::string> names;
  for (std::uint8_t type = 0; type < op.selections[0].values.size(); ++type)
    for (const manifest::Implementation& implementation : op.implementations) {
      Problem problem;
      for (std::size_t i = 0; i < op.axes.size(); ++i) problem.axes[i] = op.axes[i].maximum;
      problem.selections[0] = type;
      const auto frame = manifest::default_of(implementation).frame({op, h200()}, problem);
      for (std::string& name : manifest::name_expressions(op, implementation.passes, implementation.symbols, frame))
        names.push_back(std::move(name));
    }
  return names;
}

/// Names, integers and the punctuation between them: nothing that ends a statement, opens a scope, calls, quotes or directs.
bool is_harmless(const std::string& name) {
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:<>, -") ==
         std::string::npos;
}

struct Place {
  const char* file;
  std::string from;
  std::function<std::string(const std::string&)> to;
};

/// Where a manifest may write a text of its own choice.
const std::vector<Place>& places() {
  static const auto text = [](const char* before, const char* after) {
    return [before, after](const std::string& evil) { return before + quoted(evil) + after; };
  };
  static const std::vector<Place> all = {
      {"tiled.toml", "vector  = [1, 4]", text("vector  = [", ", 4]")},
      {"tiled.toml", "vector  = [1, 4]", text("vector  = [1, 4]\n", " = [1]")},
      {"tiled.toml", "vector  = 1\n", text("vector  = ", "\n")},
      {"tiled.toml", "\"scale_tiled<{dtype}, {threads}, {vector}>\"", text("", "")},
      {"tiled.toml", "{vector}>\"",
       [](const std::string& evil) {
         const std::string literal = quoted(evil);
         return literal.substr(1, literal.size() - 2) + ">\"";
       }},
      {"tiled.toml", "{vector}>\"",
       [](const std::string& evil) {
         const std::string literal = quoted(evil);
         return "{" + literal.substr(1, literal.size() - 2) + "}>\"";
       }},
      {"tiled.toml", "source  = \"scale.cuh\"", text("source  = ", "")},
      {"tiled.toml", "source  = \"scale.cuh\"", text("source  = \"scale.cuh\"\noptions = [", "]")},
      {"tiled.toml", "args   = [{ view = \"x\" }", text("args   = [", "")},
      {"tiled.toml", "grid   = [\"rows\"]", text("grid   = [", "]")},
      {"op.toml", "dtype = [\"f32\", \"bf16\"]", text("dtype = [", ", \"f32\"]")},
      {"op.toml", "dtype = [\"f32\", \"bf16\"]", text("dtype = [\"f32\", \"bf16\"]\n[choices]\nword = [", "]")},
      {"op.toml", "dtype = [\"f32\", \"bf16\"]", text("dtype = [\"f32\", \"bf16\"]\n[choices]\n", " = [\"a\"]")},
      {"op.toml", "factor = \"f32\"", text("", " = \"f32\"")},
      {"op.toml", "factor = \"f32\"", text("factor = ", "")},
      {"op.toml", "rows = {", text("", " = {")},
      {"op.toml", "bias = {", text("", " = {")},
      {"op.toml", "source = \"scale.cuh\"", text("source = ", "")},
      {"op.toml", "implementations = [\"tiled\", \"plain\"]", text("implementations = [", "]")},
  };
  return all;
}

std::string random_evil() {
  static const std::vector<std::string> pieces = {"1",
                                                  ">",
                                                  ";",
                                                  "\n",
                                                  "#include \"/etc/passwd\"",
                                                  "//",
                                                  "/*",
                                                  "*/",
                                                  "{",
                                                  "}",
                                                  "<",
                                                  "::",
                                                  "kiln",
                                                  "asm",
                                                  "(\"trap;\")",
                                                  "\"",
                                                  "'",
                                                  "\\",
                                                  "%:",
                                                  "__DATE__",
                                                  "-",
                                                  ", ",
                                                  " ",
                                                  "decltype",
                                                  "sizeof(x)",
                                                  "$(id)",
                                                  "`id`",
                                                  "../",
                                                  "/etc/passwd",
                                                  "scale_tiled<float, 1, 1>",
                                                  "threads",
                                                  "dtype",
                                                  "rows",
                                                  "@",
                                                  "\t",
                                                  "\x7f",
                                                  "\xc3\xa9",
                                                  "float",
                                                  "0x",
                                                  "9223372036854775808",
                                                  "--include-path=/etc",
                                                  "-I/",
                                                  "--pre-include=/etc/passwd",
                                                  "?\?="};
  std::string text;
  const int count = *rc::gen::inRange(0, 6);
  for (int i = 0; i < count; ++i) text += *rc::gen::elementOf(pieces);
  return text;
}

}  // namespace

TEST_CASE(
    "fault 31: whatever a manifest writes, what reaches the compiler is integers and declared names, or it is refused") {
  const Files files = scale_files();
  const std::vector<std::string> options = {"--use_fast_math", "-lineinfo", "--fmad=false",
                                            "--extra-device-vectorization"};
  std::int64_t refused = 0, accepted = 0;
  const auto try_one = [&] {
    const Place place = *rc::gen::elementOf(places());
    const std::string evil = random_evil();
    RC_LOG() << place.from << " <- " << quoted(evil);
    try {
      const manifest::Op op =
          manifest::parse_op("scale", "ops/scale", with(files, place.file, place.from, place.to(evil)));
      for (const std::string& name : all_name_expressions(op)) RC_ASSERT(is_harmless(name));
      for (const manifest::Implementation& implementation : op.implementations) {
        RC_ASSERT(implementation.source == "scale.cuh");
        for (const std::string& option : implementation.options)
          RC_ASSERT(option.starts_with("--maxrregcount=") ||
                    std::find(options.begin(), options.end(), option) != options.end());
      }
      ++accepted;
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::bad_manifest || error.kind() == ErrorKind::bad_expression ||
                error.kind() == ErrorKind::bad_input);
      ++refused;
    }
  };
  CHECK(rc::check("manifests", [&] {
    for (int draw = 0; draw < 5; ++draw) try_one();  // one in fifty is accepted
  }));
  CHECK(refused > 0);
  CHECK(accepted > 0);
  tally(31, refused + accepted, "manifests with random text in every place that takes one");
}

TEST_CASE("fault 31: code in the place of a value, a name, a type, an option or a source is refused by file and line") {
  const std::vector<std::string> evils = {"1>; evil<1",
                                          "4>\n#include \"/etc/passwd\"\n",
                                          "scale_tiled<float, 64, 1>; __device__ int x",
                                          "{ threads }; asm(\"trap;\")",
                                          "f32> y; template <typename T = float",
                                          "--pre-include=/etc/passwd",
                                          "--include-path=/etc",
                                          "-D__DATE__=1",
                                          "--use_fast_math -I/etc",
                                          "--maxrregcount=99999999999999999999",
                                          "/etc/passwd",
                                          "../../../../etc/passwd",
                                          "scale.cuh\n",
                                          std::string(1 << 20, 'x')};
  const Files files = scale_files();
  std::int64_t cases = 0;
  for (const Place& place : places())
    for (const std::string& evil : evils) {
      CAPTURE(place.from);
      CAPTURE(evil.substr(0, 60));
      const Error error = error_of([&] {
        const manifest::Op op =
            manifest::parse_op("scale", "ops/scale", with(files, place.file, place.from, place.to(evil)));
        all_name_expressions(op);
      });
      CHECK(error.kind() == ErrorKind::bad_manifest);
      CHECK_MESSAGE(contains(error.what(), std::string("ops/scale/") + place.file + ":"), std::string(error.what()));
      CHECK(std::string_view(error.what()).size() < 2000);
      ++cases;
    }
  tally(31, cases, "manifests with code in a place that takes a value or a name");
}

TEST_CASE("fault 31: a name expression that smuggles text is refused before NVRTC pastes it into a source") {
  const std::vector<std::string> smuggled = {"3>\n#include \"/etc/passwd\"\n",
                                             "3>; int x[__COUNTER__]",
                                             "sizeof(\"x\")",
                                             "__has_include(</etc/passwd>)",
                                             "sizeof(__DATE__)",
                                             "3> %: include",
                                             "3>\r#include </etc/passwd>",
                                             "3> \\\n#include </etc/passwd>",
                                             "3> ?\?=include </etc/passwd>",
                                             "[]{ return 3; }()"};
  for (const std::string& text : smuggled) {
    CAPTURE(text);
    jit::Specialisation specialisation = specialisation_of(scale_op(), "tiled", {128, 4});
    specialisation.name_expressions = {"scale_tiled<float, 128, " + text + ">"};
    const Error error = error_of([&] { jit::compile(specialisation); });
    CHECK(error.kind() == ErrorKind::compile_failed);
    CHECK_FALSE(contains(error.what(), "root:"));
  }
  tally(31, static_cast<std::int64_t>(smuggled.size()), "name expressions that smuggle text");
}

}  // namespace kiln::faults

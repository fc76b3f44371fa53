// A template is read by a compiler that obeys includes and quotes what it reads in its messages.
#include <cstdlib>

#include "faults/engine/fixture.hpp"
#include "jit/include_scan.hpp"

namespace kiln::faults {
namespace {

constexpr const char* secret_text = "s3cr3t_w0rd";

/// One kernel, in a source that asks for more than its own.
jit::Specialisation kernel_with(const std::string& text, std::vector<manifest::SourceFile> headers = {}) {
  jit::Specialisation specialisation;
  specialisation.label = "scale/plain";
  specialisation.entry = "k.cuh";
  specialisation.folder = "/home/user/ops/scale";
  headers.insert(headers.begin(), {"k.cuh", text});
  specialisation.files = std::move(headers);
  specialisation.name_expressions = {"k"};
  specialisation.arch = "sm_90a";
  return specialisation;
}

/// What the compiler, or what guards it, said; the cubin's bytes when it said nothing.
std::string outcome_of(const jit::Specialisation& specialisation, bool& compiled) {
  compiled = false;
  try {
    const jit::Cubin cubin = jit::compile(specialisation);
    compiled = true;
    return cubin.log + std::string(reinterpret_cast<const char*>(cubin.image.data()), cubin.image.size());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile_failed);
    return error.what();
  }
}

/// Each line of these reads the secret, if anything obeys it: S is its absolute path, N its name.
const std::vector<std::string>& reading_sources() {
  static const std::vector<std::string> all = {
      "#include \"S\"\n",
      "#include <S>\n",
      "#include </S>\n",
      "#include \"../N\"\n",
      "#include \"./N\"\n",
      "#include \"N\"\n",
      "#include <N>\n",
      "#  include/**/\"S\"\n",
      "%:include \"S\"\n",
      "%:  include \"N\"\n",
      "?\?=include \"S\"\n",
      "// ?\?/\n#include \"S\"\n",
      "const char* s = \"?\?/\"; // \";\n#include \"S\"\n",
      "#inc\\\nlude \"S\"\n",
      "#\\\ninclude \"S\"\n",
      "#include \\\n\"S\"\n",
      "/* \\*/ #include \"S\"\n",
      "/*/ */ #include \"S\"\n",
      "#define PATH \"S\"\n#include PATH\n",
      "#define PATH <S>\n#include PATH\n",
      "#define PATH(x) #x\n#include PATH(S)\n",
      "#define CAT(a, b) a##b\n#define NAME \"S\"\n#include CAT(NA, ME)\n",
      "#define DO #include \"S\"\nDO\n",
      "#define INC include\n#INC \"S\"\n",
      "_Pragma(\"include \\\"S\\\"\")\n",
      "#pragma include_alias(\"own.cuh\", \"S\")\n#include \"own.cuh\"\n",
      "#pragma include_alias(<own.cuh>, <S>)\n#include <own.cuh>\n",
      "#pragma push_macro(\"S\")\n",
      "#pragma dependency \"S\"\n",
      "#pragma GCC dependency \"S\"\n",
      "#pragma clang module import \"S\"\n",
      "#pragma comment(include, \"S\")\n",
      "#include_next \"S\"\n",
      "#include_next <N>\n",
      "#import \"S\"\n",
      "#using \"S\"\n",
      "#load \"S\"\n",
      "#embed \"S\"\n",
      "const char e[] = {\n#embed \"S\"\n};\n",
      "const char e[] = {\n#embed <N> limit(9)\n};\n",
      "import \"S\";\n",
      "import <S>;\n",
      "export import \"S\";\n",
      "export import <N>;\n",
      "module;\n#include \"S\"\n",
      "#line 1 \"S\"\nint broken = ;\n",
      "# 1 \"S\"\nint broken = ;\n",
      "# 1 \"S\" 1\nint broken = ;\n",
      "#line 1 \"N\"\nint broken = ;\n",
      "extern \"C\" __device__ void q() { asm volatile(\".include \\\"S\\\"\"); }\n",
      "extern \"C\" __device__ void q() { asm volatile(\".file 1 \\\"S\\\"\\n.loc 1 1 1\\n bad;\"); }\n",
      "#if __has_include(\"S\")\nint there = ;\n#endif\n",
      "#ifdef __has_embed\n#if __has_embed(\"S\")\nint there = ;\n#endif\n#endif\n",
      "#if 0\n'\n#endif\n#include \"S\"\n",
      "#if 0\n\"\n#endif\n#include \"S\"\n",
      "#define Q(x) #x\nconst char* a = Q('\"');\n#include \"S\"\n//\"'\n",
      "auto r = R\"x(\n)x\";\n#include \"S\"\n",
      "auto r = LR\"(\"\n)\";\n#include \"S\"\n",
      "auto r = u8R\"(/*)\";\n#include \"S\"\n//*/\n",
      "#error\n#include \"S\"\n",
      "#warning \"\n#include \"S\"\n",
      "\\\n#include \"S\"\n",
      "\\ \n#include \"S\"\n",
      "\v#include \"S\"\n",
      "\f#include \"S\"\n",
      "\r#include \"S\"\r\n",
      "int a;\r#include \"S\"\r",
      "\xe2\x80\xa8#include \"S\"\n",
      "\xef\xbb\xbf#include \"S\"\n",
      "#if 1 //\\\n#else\n#include \"S\"\n#endif\n",
      "#if 0 //\\\n#else\n#include \"S\"\n#endif\n",
      "#if 0 /*\n#else\n*/\n#else\n#include \"S\"\n#endif\n",
  };
  return all;
}

std::string with_secret(std::string text, const fs::path& secret) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  replace("\"S\"", "\"" + secret.string() + "\"");
  replace("\\\"S\\\"", "\\\"" + secret.string() + "\\\"");
  replace("<S>", "<" + secret.string() + ">");
  replace("(S)", "(" + secret.string() + ")");
  replace("</S>", "</" + secret.string() + ">");
  replace("N\"", secret.filename().string() + "\"");
  replace("<N>", "<" + secret.filename().string() + ">");
  return text;
}

class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~WorkingFolder() { fs::current_path(before_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  fs::path before_;
};

}  // namespace

TEST_CASE("fault 30: sources that reach past their files or into the clock are refused by file and line") {
  const std::vector<std::string> refused = {
      "#include \"/etc/passwd\"\n",
      "#include </etc/passwd>\n",
      "#include <//etc/passwd>\n",
      "#include \"../secret.cuh\"\n",
      "#include \"common/../../secret.cuh\"\n",
      "#include \"./x.cuh\"\n",
      "#include \"..\"\n",
      "#include \"\"\n",
      "#include \"a\\b\"\n",
      "#include \"C:/x\"\n",
      "#include \"~/x\"\n",
      "#define F \"/etc/passwd\"\n#include F\n",
      "#include MACRO\n",
      "#include __FILE__\n",
      "#include\n",
      "#include \"unterminated\n",
      "#include_next \"x\"\n",
      "#import \"x\"\n",
      "#embed \"x\"\n",
      "import <x>;\n",
      "export import \"x\";\n",
      "#if __has_include(\"/etc/passwd\")\n#endif\n",
      "#if __has_include/**/(</etc/passwd>)\n#endif\n",
      "#if __has_include(\"../x\")\n#endif\n",
      "#if __has_include(MACRO)\n#endif\n",
      "#if __has_include MACRO\n#endif\n",
      "#elif __has_include(\"/etc/passwd\")\n",
      "#define H __has_include\n#if H(\"/etc/passwd\")\n#endif\n",
      "#define H(x) x(\"/etc/passwd\")\n#if H(__has_include)\n#endif\n",
      "#define CAT(a, b) a##b\n#if CAT(__has_, include)(\"/etc/passwd\")\n#endif\n",
      "#define CAT(a, b) a##b\n#if CAT(_, _has_include)(\"/etc/passwd\")\n#endif\n",
      "#define CAT(a, b) a##b\nint z = CAT(__has_, include)(\"/etc/passwd\");\n",
      "#define CAT(a, b) a##b\n#if CAT(__has_e, mbed)(\"/etc/passwd\")\n#endif\n",
      "#if __has_include_next(\"x\")\n#endif\n",
      "#if __has_embed(\"/etc/passwd\")\n#endif\n",
      "int z = __has_include(\"/etc/passwd\");\n",
      "const char* built = __DATE__;\n",
      "const char* built = __TIME__;\n",
      "#if 1\nconst char* built = __TIMESTAMP__;\n#endif\n",
      "#define WHEN __DATE__\n",
      "#define CAT(a, b) a##b\nconst char* built = CAT(__DA, TE__);\n",
      "#define CAT(a, b) a##b\nconst char* built = CAT(__TIME, STAMP__);\n",
      "#if 1\n#elif R\"(\n#include \"/etc/passwd\"\n)\"\n#endif\n",
      "auto s = R\"a b(\n#include \"/etc/passwd\"\n)a b\";\n",
      "auto s = 'a'R\"(\";\n#include \"/etc/passwd\"\n//)\"",
      "auto s = \"a\"\\\nR\"(\";\n#include \"/etc/passwd\"\n//)\"",
      "auto s = R\"()\"R\"(\";\n#include \"/etc/passwd\"\n//)\"",
      "int n = 0xR\"(\";\n#include \"/etc/passwd\"\n//)\"",
      "int n = 1e+R\"(\";\n#include \"/etc/passwd\"\n//)\"",
      "auto s = 1')\"'/*)\"\n#include \"/etc/passwd\"\n//*/",
      "auto s = ''R\"(/*)\";\n#include \"/etc/passwd\"\n//*/",
      "auto s = R\"(\n",
      "/* no end\n#include \"/etc/passwd\"\n",
      "don't /*\n#include \"/etc/passwd\"\n*/\n",
      "$R\"(\n",
      "\xc3\xa9R\"(\n",
      "\xef\xbb\xbf#include \"/etc/passwd\"\n",
      std::string("int a;") + '\0' + "\n",
  };
  for (const std::string& text : refused) {
    CAPTURE(text);
    const Error error = error_of([&] { jit::scan_template("ops/k.cuh", "\n" + text); });
    CHECK(error.kind() == ErrorKind::compile_failed);
    CHECK(contains(error.what(), "ops/k.cuh("));
    CHECK_FALSE(contains(error.what(), "root:"));
  }
  CHECK(contains(error_of([] { jit::scan_template("k.cuh", "\n\n#include \"/etc/passwd\"\n"); }).what(), "k.cuh(3)"));
  tally(30, static_cast<std::int64_t>(refused.size()), "sources refused before NVRTC sees them");
}

TEST_CASE("fault 30: nothing that a source may write brings another file into a message or into machine code") {
  const TemporaryFolder folder, elsewhere;
  const std::string content = std::string("#error ") + secret_text + "\n" + secret_text + " nonsense;\n";
  fs::create_directory(folder / "cwd");
  write(folder / "cwd/secret.cuh", content);
  write(folder / "secret.cuh", content);
  const WorkingFolder here(folder / "cwd");
  std::int64_t compiled = 0;
  for (const std::string& source : reading_sources()) {
    for (const fs::path& secret : {folder / "secret.cuh", fs::path("/etc/passwd")}) {
      const std::string text = with_secret(source, secret) + "extern \"C\" __global__ void k() {}\n";
      CAPTURE(text);
      bool good = false;
      const std::string said = outcome_of(kernel_with(text, {{"own.cuh", "int own;\n"}}), good);
      CHECK_FALSE(contains(said, secret_text));
      CHECK_FALSE(contains(said, "root:"));
      CHECK_FALSE(contains(said, "/bin/"));
      compiled += good ? 1 : 0;
    }
  }
  MESSAGE("of ", 2 * reading_sources().size(), " sources ", compiled,
          " compiled, to code that holds nothing of the file");
  tally(30, static_cast<std::int64_t>(2 * reading_sources().size()),
        "sources that would read another file, given to NVRTC");
}

TEST_CASE("child: headers outside are not found" * doctest::skip()) {
  for (const char* text : {"#include <outside.cuh>\n", "#include \"outside.cuh\"\n"}) {
    bool good = true;
    const std::string said = outcome_of(kernel_with(text + std::string("__global__ void k() {}\n")), good);
    CHECK_FALSE(good);
    CHECK_FALSE(contains(said, secret_text));
  }
  // Of a header that both have, the op's own is read.
  bool good = false;
  outcome_of(kernel_with("#include \"own.cuh\"\n", {{"own.cuh", "extern \"C\" __global__ void k() {}\n"}}), good);
  CHECK(good);
}

TEST_CASE("fault 30: a header in the working directory, or where a compiler's variables point, is not read") {
  const TemporaryFolder folder;
  for (const char* name : {"outside.cuh", "own.cuh", "k.cuh"})
    write(folder / name, std::string("#error ") + secret_text + "\n");
  const std::string at = (folder / "").string();
  std::string variables;
  for (const char* name :
       {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "INCLUDE", "NVRTC_INCLUDE_PATH", "EDG_INCLUDE"})
    variables += variable(name, at);
  run_child("child: headers outside are not found", "cd '" + at + "' && " + variables);
  tally(30, 3, "headers shadowed or offered from outside");
}

TEST_CASE("fault 30: an op whose template reads other files is refused by the command, and its contents stay unsaid") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  op.edit("scale.cuh", "#include \"common/types.cuh\"", "#include \"/etc/passwd\"\n#include \"common/types.cuh\"");
  const std::string at = op.globals(folder / "overlay.kiln");
  for (const std::string command :
       {"kiln tune scale rows=64 cols=128 dtype=f32", "kiln tune scale rows=64 cols=128 --json",
        "kiln run scale rows=64 cols=128 dtype=f32 factor=2"}) {
    const Outcome outcome = shell(command + at);
    CHECK(outcome.status != 0);
    CHECK_MESSAGE(contains(outcome.output, "scale.cuh(3)"), outcome.output);
    CHECK_FALSE(contains(outcome.output, "root:"));
  }
  tally(30, 3, "commands given an op that reads another file");
}

TEST_CASE("fault 30: an op's folder that links to other files is refused, and their contents stay unsaid") {
  std::int64_t cases = 0;
  for (const char* name : {"leak.cuh", "leak.toml"}) {
    const TemporaryFolder folder;
    const CopiedOp op(folder);
    fs::create_symlink("/etc/passwd", op.root() / "scale" / name);
    const std::string said = expect(2, "kiln ops scale" + op.templates());
    CHECK_MESSAGE(contains(said, name), said);
    CHECK(contains(said, "a link that leaves the op's folder"));
    CHECK_FALSE(contains(said, "root:"));
    fs::remove(op.root() / "scale" / name);
    fs::create_symlink("scale.cuh", op.root() / "scale" / name);  // within the folder
    if (std::string_view(name) == "leak.cuh") expect(0, "kiln ops scale" + op.templates());
    ++cases;
  }
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  const fs::path pipe = op.root() / "scale" / "pipe.cuh";
  expect(0, "mkfifo '" + pipe.string() + "'");
  CHECK(contains(expect(2, "timeout 10 '" KILN_COMMAND "' ops scale" + op.templates()), "pipe.cuh"));
  tally(30, cases + 1, "op folders with a link or a pipe");
}

}  // namespace kiln::faults

// Finds the files that a template includes. tests/faults/engine/30_malicious_template.cpp tests refused sources.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "jit/include_closure.hpp"
#include "jit/include_scan.hpp"
#include "jit/source_lexer.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;

namespace {

std::vector<std::string> names(const std::vector<Inclusion>& inclusions) {
  std::vector<std::string> all;
  for (const Inclusion& each : inclusions) all.push_back(each.name);
  return all;
}

using Names = std::vector<std::string>;

/// Returns the tokens up to and with the end of a line or of the text, or nothing where the text is ambiguous.
std::optional<std::vector<Token>> line_of(SourceLexer& lexer) {
  std::vector<Token> tokens;
  try {
    do tokens.push_back(lexer.next());
    while (tokens.back().kind != TokenKind::end_of_line && tokens.back().kind != TokenKind::end_of_file);
  } catch (const AmbiguousSource&) {
    return std::nullopt;
  }
  return tokens;
}

/// Whether scan_template would refuse this token somewhere, or read more of it.
bool is_judged(const Token& token) {
  static const std::vector<std::string> names = {"__has_include", "__has_embed", "__DATE__", "__TIME__",
                                                 "__TIMESTAMP__"};
  return token.kind == TokenKind::literal ||
         (token.kind == TokenKind::identifier && std::any_of(names.begin(), names.end(), [&](const std::string& name) {
            return token.text.starts_with(name) || name.starts_with(token.text);
          }));
}

bool is_same(const Token& a, const Token& b) { return a.kind == b.kind && a.text == b.text && a.line == b.line; }

}  // namespace

TEST_CASE("includes are found however they are spelled") {
  const std::vector<std::string> spellings = {
      "#include \"x.cuh\"\n",
      "  #\tinclude\v\"x.cuh\"",
      "%:include \"x.cuh\"\n",
      "#incl\\\nude \"x.cuh\"\n",
      "#incl\\\r\nude \"x.cuh\"\r\n",
      "/* a\n b */ # /* c */ include /* d */ \"x.cuh\" // e\n",
      "#if 0\n#include \"x.cuh\"\n#endif\n",
      "#if 0\n don't\n#endif\n#include \"x.cuh\"\n",
      "const char* a = \"/*\";\n#include \"x.cuh\"\n//*/",
      "const char* a = \"\\\"/*\";\n#include \"x.cuh\"\n//*/",
      "const char q = '\"';\n#include \"x.cuh\"\n//'\"",
      "int n = 1'000'000;\n#include \"x.cuh\"\n//'",
      "int n = 1e+1 - 0x1p-1;\n#include \"x.cuh\"\n",
      "auto s = NOT_R\"(\";\n#include \"x.cuh\"\n//)\"",
      "auto s = R\"a(\n)b\" )a\";\n#include \"x.cuh\"\n",
      "int a = 8 / 2; /**/\n#include \"x.cuh\"",
      "#if __has_include(\"x.cuh\")\n#endif\n",
      "#if defined(__has_include) && __has_include(\"x.cuh\")\n#endif\n",
      "#\n#include \"x.cuh\"\n",
  };
  for (const std::string& text : spellings) {
    CAPTURE(text);
    CHECK(names(scan_template("k.cuh", text)) == Names{"x.cuh"});
  }
}

TEST_CASE("what only looks like an include is none") {
  const std::vector<std::string> texts = {
      "// #include \"x\"\n",
      "/*\n#include \"x\"\n*/",
      "// spliced \\\n#include \"x\"\n",
      "const char* a = \"\\\n#include \\\"x\\\"\";\n",
      "auto s = R\"(\n#include \"x\"\n)\";\n",
      "auto s = u8R\"x(\n#include \"/etc/passwd\"\n)x\";\n",
      "auto s = R\\\n\"(\n#include \"x\"\n)\";\n",
      "auto s = R\"(\\\n#include \"x\"\n)\";\n",
      "int a; #include \"x\"\n",
      "#define text \"#include\"\n",
      "#pragma once\n#line 7\n#error don't\n",
      "#ifdef __has_include\n#endif\n",
      "",
  };
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(scan_template("k.cuh", text).empty());
  }
}

TEST_CASE("a line that is skipped whole holds nothing that is judged, and what follows it is read as it was") {
  std::int64_t skipped_lines = 0;
  CHECK(rc::check([&] {
    const auto plain = rc::gen::element<std::string>("\n", "\n", "\r\n", " ", "a", "b_2", "1", "+", "(");
    const auto odd = rc::gen::element<std::string>("_", "__DATE__", "__h", "__shared__", "_T", "1e", ".", "'", "\"",
                                                   "\\", "/", "//", "/*", "*/", "#", "%:", "include", "import",
                                                   "export", "R\"(", ")\"", "<x>", "$", "\x01", "\xc3", "\t");
    const auto pieces = rc::gen::weightedOneOf<std::string>({{4, plain}, {1, odd}});
    std::string text;
    for (const std::string& piece : *rc::gen::container<std::vector<std::string>>(pieces)) text += piece;
    RC_LOG() << text;
    for (SourceLexer lexer(text);;) {
      SourceLexer ahead = lexer;
      const bool skips = ahead.skip_harmless_line();
      const auto tokens = line_of(lexer);
      if (skips) {
        ++skipped_lines;
        RC_ASSERT(tokens.has_value());
        RC_ASSERT(tokens->back().kind == TokenKind::end_of_line);
        RC_ASSERT(tokens->front().text != "#" && tokens->front().text != "import" && tokens->front().text != "export");
        RC_ASSERT(std::none_of(tokens->begin(), tokens->end(), is_judged));
        SourceLexer before = lexer;
        const auto next = line_of(before), skipped_to = line_of(ahead);
        RC_ASSERT(next.has_value() == skipped_to.has_value());
        if (next) RC_ASSERT(std::equal(next->begin(), next->end(), skipped_to->begin(), skipped_to->end(), is_same));
      }
      if (!tokens || tokens->back().kind == TokenKind::end_of_file) return;
    }
  }));
  CHECK(skipped_lines > 100);
  SourceLexer plain("  int a_1 = b / c;  // \xc3\xa9 don't\nnext");
  CHECK(plain.skip_harmless_line());
  CHECK(plain.next().text == "next");
}

TEST_CASE("a line is counted through comments, splices and raw strings") {
  const auto found =
      scan_template("k.cuh", "/*\n*/ // \\\n\nauto s = R\"(\n\n)\";\n#include <x>\n#if __has_include(<y>)\n");
  REQUIRE(found.size() == 2);
  CHECK(found[0].line == 7);
  CHECK(found[0].angled);
  CHECK(found[1].line == 8);
}

TEST_CASE("toolkit headers may compute includes; what is plain in them is found") {
  CHECK(names(scan_toolkit_header("#include MACRO\n#include <a.h>\n#define X $ @\n#\n#include \"b/c.h\"\n/* open")
                  .inclusions) == Names{"a.h", "b/c.h"});
}

TEST_CASE("the closure lists each file once, the entry first, in the order of inclusion") {
  const Specialisation specialisation = specialise({{"k.cuh", "#include \"b.cuh\"\n#include \"a.cuh\"\n"},
                                                    {"a.cuh", "#include \"k.cuh\"\n"},
                                                    {"b.cuh", "#include \"a.cuh\"\n"},
                                                    {"unused.cuh", "#include \"/etc/passwd\"\n"}});
  std::vector<std::string> files;
  for (const manifest::SourceFile& file : include_closure(specialisation)) files.push_back(file.name);
  CHECK(files == Names{"k.cuh", "b.cuh", "a.cuh"});
}

TEST_CASE("a file that is not the op's is named with the line that includes it and with what there is") {
  const Error error = thrown_by([] {
    include_closure(specialise({{"k.cuh", "\n#include \"h.cuh\"\n"}, {"other.cuh", ""}}));
  });
  CHECK(error.kind() == ErrorKind::compile_failed);
  CHECK(holds(error.what(), "/home/user/ops/scale/k.cuh(2)"));
  CHECK(holds(error.what(), "h.cuh"));
  CHECK(holds(error.what(), "other.cuh"));
}

TEST_CASE("a missing entry is an error that names it") {
  Specialisation specialisation = scale_kernel();
  specialisation.entry = "gone.cuh";
  CHECK(holds(thrown_by([&] { include_closure(specialisation); }).what(), "gone.cuh"));
}

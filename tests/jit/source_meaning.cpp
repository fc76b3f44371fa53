// Which edits of sources change their digests.
#include "jit/source_meaning.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jit/include_closure.hpp"
#include "jit/source_lexer.hpp"
#include "manifest/catalogue.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;

namespace {

constexpr const char* some_nvrtc = "nvrtc 13.0 build 00ff";
using Files = std::vector<manifest::SourceFile>;

struct Pair {
  const char* what;
  std::string left, right;
};

bool same(const Files& left, const Files& right) {
  const Specialisation a = specialise(left), b = specialise(right);
  const bool keys = cubin_key(a, some_nvrtc) == cubin_key(b, some_nvrtc);
  CHECK((source_digest(a) == source_digest(b)) == keys);
  return keys;
}

bool same(const Pair& pair) { return same(Files{{"k.cuh", pair.left}}, Files{{"k.cuh", pair.right}}); }

const std::vector<Pair> equal_pairs = {
    {"a comment at the end", "int a;\n", "int a;\n// b\n"},
    {"a comment of another text", "int a; // b\n", "int a; // c #include <d> \"\n"},
    {"a comment between tokens", "int a;\n", "int/* b\n */a/**/;\n"},
    {"a comment instead of blanks", "int a;\n", "int/**/a;\n"},
    {"no line end at the end", "int a;\n#pragma once\n", "int a;\n#pragma once"},
    {"other indentation", "int f() {\n  return 1;\n}\n", "int f()\n{ return 1; }\n\n"},
    {"blanks around operators", "int a = b + c * d[1];\n", "int a=b+c*d[ 1 ] ;\n"},
    {"blanks around brackets", "f((a), {b});\n", "f( ( a ) , { b } ) ;\n"},
    {"blanks around numbers", "a = 1 + 2 - 0x1f;\n", "a=1+2-0x1f;\n"},
    {"blanks around literals", "f(\"a\" \"b\", 'c');\n", "f( \"a\"\"b\" , 'c' );\n"},
    {"CRLF", "#define A 1\nint a; // b\n", "#define A 1\r\nint a; // b\r\n"},
    {"a line splice", "#define A b c\nint a;\n", "#define A b \\\n c\nin\\\nt a;\n"},
    {"blanks of a directive's beginning", "#define A\n", "  # /* b */ define A // c\n"},
    {"the width of blanks in a directive", "#define A b c\n", "#define  A /* d */ b\tc \n"},
    {"blanks outside of arguments with a macro that stringises", "#define S(x) #x\nf(a, b);\n",
     "#define S(x) #x\nf(a,\n   b);  // c\n"},
    {"a comment beside a macro that forms no name of a place", "#define P(n) KILN_##n\nint P(1);\n",
     "#define P(n) KILN_##n\nint P(1);  // a\n"},
    {"a comment beside a raw string", "auto a = R\"(b)\";\n", "auto a = R\"(b)\"; // c\n"},
    {"a comment beside __has_include of a toolkit's file", "#if __has_include(<a.h>)\n#endif\n",
     "#if __has_include(<a.h>) // b\n#endif\n"},
};

const std::vector<Pair> different_pairs = {
    {"another name", "int a;\n", "int b;\n"},
    {"another number", "int a = 1;\n", "int a = 2;\n"},
    {"a blank inside of a name", "int ab;\n", "int a b;\n"},
    {"a comment inside of a name", "int ab;\n", "int a/**/b;\n"},
    {"a + +b and a++b", "a + +b;\n", "a++b;\n"},
    {"a+ +b and a++b", "a+ +b;\n", "a++b;\n"},
    {"a comment inside of an operator", "a++b;\n", "a+/**/+b;\n"},
    {"> > and >>", "A<B<c> > d;\n", "A<B<c>> d;\n"},  // a macro's argument may tell them apart
    {". . . and ...", "f(. . .);\n", "f(...);\n"},
    {". 5 and .5", "a . 5;\n", "a .5;\n"},
    {"1 .5 and 1.5", "1 .5;\n", "1.5;\n"},
    {"1e +5 and 1e+5", "1e +5;\n", "1e+5;\n"},
    {"L \"a\" and L\"a\"", "L \"a\";\n", "L\"a\";\n"},
    {"\"a\" _b and \"a\"_b", "\"a\" _b;\n", "\"a\"_b;\n"},
    {"R\"(a)\" and \"(a)\"", "R\"(a)\";\n", "\"(a)\";\n"},
    {"a comment and a string", "\"a//b\";\n", "\"a\" //b\";\n"},
    {"a comment inside of a string", "\"a/*b*/\";\n", "\"a/*c*/\";\n"},
    {"blanks inside of a string", "\"a b\";\n", "\"a  b\";\n"},
    {"blanks inside of a raw string", "R\"(a b)\";\n", "R\"(a  b)\";\n"},
    {"a line end inside of a raw string", "R\"(a\nb)\";\n", "R\"(a b)\";\n"},
    {"a splice inside of a raw string", "R\"(a\\\nb)\";\n", "R\"(ab)\";\n"},
    {"a splice before a raw string", "R\\\n\"(a\\\nb)\";\n", "R\\\n\"(ab)\";\n"},
    {"F(x) and F (x)", "#define F(x) x\n", "#define F (x) x\n"},
    {"a directive and its continuation", "#define A b\nc\n", "#define A b c\n"},
    {"a directive and text", "#define A\n", "a;\n #define A\n"},
    {"a directive behind a token", ";\n#pragma once\n", "; #pragma once\n"},
    {"a line between directives", "#if A\nb\n#endif\nc\n", "#if A\n#endif\nb\nc\n"},
    {"a pragma", "#pragma unroll 2\n", "#pragma unroll 4\n"},
    {"another toolkit's file", "#include <a.h>\n", "#include <b.h>\n"},
    {"blanks of an argument that is stringised", "#define S(x) #x\nS(a+b);\n", "#define S(x) #x\nS(a + b);\n"},
    {"blanks of an argument that a digraph stringises", "#define S(x) %:x\nS(a+b);\n", "#define S(x) %:x\nS(a + b);\n"},
    {"a line above __LINE__", "int a = __LINE__;\n", "\nint a = __LINE__;\n"},
    {"a comment above assert", "assert(a);\n", "// b\nassert(a);\n"},
    {"a comment above a source_location", "f(source_location::current());\n", "// b\nf(source_location::current());\n"},
    {"a line above a name that is formed", "#define P(a, b) a##b\nint a = P(__LI, NE__);\n",
     "#define P(a, b) a##b\n\nint a = P(__LI, NE__);\n"},
    {"a line above a name of a place with a formed end", "#define P(b) __LI##b\nint a = P(NE__);\n",
     "#define P(b) __LI##b\n\nint a = P(NE__);\n"},
    {"a line above #line", "#line 7\n", "\n#line 7\n"},
    {"a line above a line marker", "# 7 \"a\"\n", "\n# 7 \"a\"\n"},
    {"text of a group that is compiled out", "#if 0\ndon't\n#endif\n", "#if 0\ndon't //\n#endif\n"},
};

/// The text of a file that closure.given would list, as its neighbours see it.
std::optional<std::string> form_of(const std::string& text, Blanks blanks) {
  SourceMeaning meaning([](std::string_view) { return std::nullopt; }, {}, blanks);
  const auto form = meaning.of(text);
  return form ? std::optional<std::string>(*form) : std::nullopt;
}

/// Tokens as words, with the line ends of directives. Nothing for ambiguous text.
std::optional<std::vector<std::string>> tokens_of(const std::string& text) {
  std::vector<std::string> words;
  SourceLexer lexer(text);
  bool line_begins = true, in_directive = false;
  try {
    for (;;) {
      const Token token = lexer.next();
      if (token.kind == TokenKind::end_of_file) return words;
      if (token.kind == TokenKind::end_of_line) {
        if (in_directive) words.emplace_back("\n");
        in_directive = false;
        line_begins = true;
        continue;
      }
      in_directive = in_directive || (line_begins && token.text == "#");
      line_begins = false;
      words.push_back(token.text);
    }
  } catch (const AmbiguousSource&) {
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("digests do not change with comments and layout") {
  for (const Pair& pair : equal_pairs) {
    CAPTURE(pair.what);
    CHECK(same(pair));
  }
}

TEST_CASE("digests change with tokens, and with all through which text reaches the machine code") {
  for (const Pair& pair : different_pairs) {
    CAPTURE(pair.what);
    CHECK_FALSE(same(pair));
  }
}

TEST_CASE("digests do not change with the names of included files, and change with what is included where") {
  const auto including = [](const char* first, const char* second) {
    return "#include \"" + std::string(first) + "\"\n#include \"" + second + "\"\n";
  };
  const Files plain = {{"k.cuh", including("a.cuh", "b.cuh")}, {"a.cuh", "int a;\n"}, {"b.cuh", "int b;\n"}};
  const Files moved = {
      {"l.cuh", including("detail/c.cuh", "b.cuh")}, {"b.cuh", "int b;\n"}, {"detail/c.cuh", "int a;\n"}};
  const Files swapped = {{"k.cuh", including("b.cuh", "a.cuh")}, {"a.cuh", "int a;\n"}, {"b.cuh", "int b;\n"}};
  const Files twice = {{"k.cuh", including("a.cuh", "a.cuh")}, {"a.cuh", "int a;\n"}};
  const Files two_of_a_text = {{"k.cuh", including("a.cuh", "b.cuh")}, {"a.cuh", "int a;\n"}, {"b.cuh", "int a;\n"}};
  CHECK(same(plain, moved));
  CHECK_FALSE(same(plain, swapped));
  CHECK_FALSE(same(twice, two_of_a_text));
  // Here the name counts.
  const auto asked = [](const std::string& name) {
    return Files{{"k.cuh", "#if __has_include(\"" + name + "\")\n#include \"" + name + "\"\n#endif\n"}, {name, "\n"}};
  };
  CHECK_FALSE(same(asked("a.cuh"), asked("b.cuh")));
}

TEST_CASE("a macro in any file of the closure that stringises makes the blanks of all files count") {
  const auto with = [](const std::string& text) {
    return Files{{"k.cuh", "#include \"a.cuh\"\n" + text}, {"a.cuh", "#define S(x) #x\n"}};
  };
  CHECK_FALSE(same(with("S(a+b);\n"), with("S(a + b);\n")));
  CHECK(same(with("S(a + b);\n"), with("S(a\n  + b);  // c\n")));
}

TEST_CASE("options that ask for line numbers make the text count for machine code, and not for records") {
  const Specialisation plain = specialise({{"k.cuh", "int a;\n"}}), commented = specialise({{"k.cuh", "int a; //\n"}});
  for (const char* option : {"-lineinfo", "--generate-line-info", "-G", "--device-debug", "--use_fast_math"}) {
    CAPTURE(option);
    Specialisation a = plain, b = commented;
    a.options = b.options = {option};
    CHECK((cubin_key(a, some_nvrtc) == cubin_key(b, some_nvrtc)) == (option == std::string("--use_fast_math")));
    CHECK(source_digest(a) == source_digest(b));
  }
}

TEST_CASE("a macro of a toolkit header through which text reaches the machine code makes text count where it is used") {
  const auto root = std::filesystem::temp_directory_path() / ("kiln_toolkit_macros_" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "include");
  setenv("CUDA_HOME", root.c_str(), 1);
  const auto digest_with = [&](const std::string& header, const std::string& text) {
    std::ofstream(root / "include/cuda_fp16.h") << header;
    Specialisation specialisation = specialise({{"k.cuh", "#include <cuda_fp16.h>\n" + text}});
    specialisation.toolkit_headers = true;
    return source_digest(specialisation);
  };
  const std::string indirect = "#define S(x) #x\n#define T(x) S(x)\n#define L f(__LINE__)\n#define N(x) (x)\n";
  const std::vector<std::pair<std::string, bool>> uses = {{"T(1)", false}, {"L", false}, {"N(1)", true}};
  for (const auto& each : uses) {
    CAPTURE(each.first);
    CHECK((digest_with(indirect, each.first) == digest_with(indirect, each.first + "//")) == each.second);
  }
  const std::string pasting = "#define P(x) a_##x\n";
  CHECK(digest_with("", pasting) != digest_with("", pasting + "//"));  // it might form the name of one
  const std::string of_caller = "void f(int line = __builtin_LINE());\n";
  CHECK(digest_with(of_caller, "f()") != digest_with(of_caller, "f()//"));
  CHECK(digest_with("#define $ __LINE__ $\n", "f()") == digest_with("#define $ __LINE__ $\n", "f()//"));
  CHECK(digest_with("#define A $ __LINE__\n", "A") != digest_with("#define A $ __LINE__\n", "A//"));
  // A toolkit header might include a file of this name.
  const auto digest_of = [&](const std::string& name) {
    Specialisation specialisation =
        specialise({{"k.cuh", "#include <cuda_fp16.h>\n#include \"" + name + "\"\n"}, {name, ""}});
    specialisation.toolkit_headers = true;
    return source_digest(specialisation);
  };
  CHECK(digest_of("a.cuh") != digest_of("b.cuh"));
  unsetenv("CUDA_HOME");
  std::filesystem::remove_all(root);
}

TEST_CASE("a form has the tokens of its source, and is its own form") {
  std::int64_t forms = 0;
  CHECK(rc::check("forms", [&] {
    const auto plain = rc::gen::element<std::string>("\n", "\n", " ", " ", "a", "b", "1", "2", "+", "-", "(", ".", ">");
    const auto odd = rc::gen::element<std::string>("1e", "0x", "\"", "\"c\"", "'d'", "R\"(", ")\"", "R", "L", "\\\n",
                                                   "/", "//", "/*", "*/", "#", "#define A", "#include <x>\n", "\t",
                                                   "\r\n", "_", "\\", "%", ":", "u8", "...", "'");
    std::string text;
    for (const std::string& piece :
         *rc::gen::container<std::vector<std::string>>(rc::gen::weightedOneOf<std::string>({{3, plain}, {2, odd}})))
      text += piece;
    RC_LOG() << text;
    for (const Blanks blanks : {Blanks::that_part, Blanks::all}) {
      const auto form = form_of(text, blanks);
      if (!form) continue;
      const auto tokens = tokens_of(text);
      if (!tokens) continue;  // no closure has such a file
      ++forms;
      auto with_end = *tokens;
      const auto again = tokens_of(*form);
      RC_ASSERT(again.has_value());
      if (again->size() == with_end.size() + 1) with_end.emplace_back("\n");  // of a directive at the end
      RC_ASSERT(*again == with_end);
      RC_ASSERT(form_of(*form, blanks) == form);
    }
  }));
  CHECK(forms > 20);
}

TEST_CASE("a digest that an earlier version stored, over names and texts, is of the present sources") {
  const auto over_text = [](const char* kind, const Specialisation& of) {
    manifest::Hasher hasher;
    hasher.field(kind).field(std::int64_t{2});
    for (const manifest::SourceFile& file : of.files) hasher.field(file.name).field(file.text);
    hasher.field(std::int64_t{1}).field(of.name_expressions.front());
    return hasher;
  };
  const Specialisation present = scale_kernel();
  const std::string source = manifest::to_hex(over_text("source", present).finish());
  CHECK(is_present_source(present, source));
  CHECK(is_present_code(present, source));
  CHECK(is_present_source(present, manifest::to_hex(source_digest(present))));
  manifest::Hasher key = over_text("cubin", present);
  key.field(std::int64_t{2}).field("--std=c++20").field("--gpu-architecture=sm_80").field(some_nvrtc);
  CHECK(cubin_key_over_text(present, some_nvrtc) == std::optional(key.finish()));
  Specialisation commented = present, changed = present;
  edit_files(commented, [](auto& files) { append(files[1], "//"); });
  edit_files(changed, [](auto& files) { append(files[1], ";"); });
  for (const Specialisation& other : {commented, changed}) {
    CHECK_FALSE(is_present_source(other, source));
    CHECK(cubin_key_over_text(other, some_nvrtc) != cubin_key_over_text(present, some_nvrtc));
  }
  CHECK(is_present_source(commented, manifest::to_hex(source_digest(present))));
  CHECK_FALSE(is_present_source(changed, manifest::to_hex(source_digest(present))));
}

TEST_CASE("the digests of every built-in source are over its tokens") {
  const manifest::Catalogue ops{std::span<const std::filesystem::path>()};
  std::int64_t sources = 0;
  for (const manifest::Op& op : ops.all()) {
    Specialisation specialisation;
    specialisation.files = op.files;
    const auto check = [&](const std::string& entry, bool toolkit_headers) {
      CAPTURE(op.name + "/" + entry);
      specialisation.entry = entry;
      specialisation.toolkit_headers = toolkit_headers;
      CHECK(known_closure(specialisation)->closure.meaning.has_value());
      ++sources;
    };
    check(op.reference_source, op.reference_toolkit_headers);
    for (const manifest::Implementation& each : op.implementations)
      if (each.has_kernels()) check(each.source, each.toolkit_headers);
  }
  CHECK(sources > 50);
}

TEST_CASE("sources of one digest compile to the same instructions" * doctest::skip(!has_nvrtc())) {
  const Specialisation plain = scale_kernel();
  Specialisation other = plain;
  edit_files(other, [](auto& files) {
    files[0] = {"other.cuh",
                "// A comment.\n#include \"moved/factor.cuh\" // Another.\n"
                "template<typename T,int factor>__global__ void __launch_bounds__( 128 )\n\n"
                "scale(T*x, long long n){ const long long i=blockIdx.x*128ll+threadIdx.x;\n"
                "/* And another. */ if(i<n)x[i]=multiply<factor>(x[i]);}"};
    files[1].name = "moved/factor.cuh";
  });
  other.entry = "other.cuh";
  REQUIRE(cubin_key(plain, some_nvrtc) == cubin_key(other, some_nvrtc));
  CHECK(compile(plain).image == compile(other).image);
}

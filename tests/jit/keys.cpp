#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "jit/specialisation.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;

namespace {

constexpr const char* compiler = "nvrtc 13.0 build 00ff";

struct Change {
  const char* what;
  std::function<void(Specialisation&)> apply;
  bool changes_cubin;
  bool changes_source;
};

const std::vector<Change> changes = {
    {"nothing", [](Specialisation&) {}, false, false},
    {"the label", [](Specialisation& s) { s.label = "other"; }, false, false},
    {"the folder", [](Specialisation& s) { s.folder = "/elsewhere"; }, false, false},
    {"a file that nothing includes",
     [](Specialisation& s) { edit_files(s, [](auto& files) {
                               files.push_back({"x.cuh", "y"});
                             }); }, false, false},
    {"the order of the files",
     [](Specialisation& s) { edit_files(s, [](auto& files) { std::swap(files[0], files[1]); }); }, false, false},
    {"a blank in the entry", [](Specialisation& s) { edit_files(s, [](auto& files) { append(files[0], " "); }); },
     false, false},
    {"a token of the entry", [](Specialisation& s) { edit_files(s, [](auto& files) { append(files[0], ";"); }); }, true,
     true},
    {"a comment in a header", [](Specialisation& s) { edit_files(s, [](auto& files) { append(files[1], "//"); }); },
     false, false},
    {"a token of a header", [](Specialisation& s) { edit_files(s, [](auto& files) { append(files[1], ";"); }); }, true,
     true},
    {"a name expression", [](Specialisation& s) { s.name_expressions[0] = "scale<float, 4>"; }, true, true},
    {"one more name expression", [](Specialisation& s) { s.name_expressions.emplace_back(); }, true, true},
    {"an option", [](Specialisation& s) { s.options.emplace_back("--use_fast_math"); }, true, false},
    {"the architecture", [](Specialisation& s) { s.arch = "sm_90a"; }, true, false},
};

}  // namespace

TEST_CASE("a cubin key changes with what determines the bytes, and with nothing else") {
  const Specialisation plain = scale_kernel();
  for (const Change& change : changes) {
    CAPTURE(change.what);
    Specialisation changed = plain;
    change.apply(changed);
    CHECK((cubin_key(changed, compiler) != cubin_key(plain, compiler)) == change.changes_cubin);
    CHECK((source_digest(changed) != source_digest(plain)) == change.changes_source);
  }
  CHECK(cubin_key(plain, "nvrtc 13.0 build 00fe") != cubin_key(plain, compiler));
}

TEST_CASE("an include that is not there is refused with the name that was meant, or with where an op's headers lie") {
  const auto refusal = [](const std::string& name) {
    const Specialisation asks = specialise({{"k.cuh", "#include \"" + name + "\"\n"}, {"factor.cuh", "int factor;\n"}});
    return std::string(thrown_by([&] { cubin_key(asks, compiler); }).what());
  };
  const std::string whose = "neither a file of the op (k.cuh, factor.cuh) nor a common/ header";
  CHECK(holds(refusal("other.cuh"), whose + "; add the file, or set toolkit_headers = true"));
  CHECK(holds(refusal("facto.cuh"), whose + " (did you mean 'factor.cuh'?); add the file, or"));
  CHECK(holds(refusal("types.cuh"), whose + " (did you mean 'common/types.cuh'?); add the file, or"));
  CHECK(holds(refusal("common/type.cuh"), whose + " (did you mean 'common/types.cuh'?)"));
  for (const char* name : {"other.h", "sub/other.cuh", "common/other.cuh"}) {
    CAPTURE(name);
    CHECK(holds(refusal(name), "; an op's headers are NAME.cuh beside op.toml, in no other folder, or set "));
  }
  CHECK(holds(refusal("sub/factor.cuh"), whose + " (did you mean 'factor.cuh'?); an op's headers are NAME.cuh"));
}

TEST_CASE("toolkit headers enter the key by content, never by place") {
  const auto toolkit = [](const std::string& folder, const std::string& inner) {
    const auto root = std::filesystem::temp_directory_path() / ("kiln_toolkit_" + std::to_string(std::rand())) / folder;
    std::filesystem::create_directories(root / "include/sub");
    std::ofstream(root / "include/cuda_fp16.h") << "#include \"sub/inner.h\"\n#include <absent>\n";
    std::ofstream(root / "include/sub/inner.h") << inner;
    return root;
  };
  const auto key_with = [](const std::filesystem::path& home) {
    setenv("CUDA_HOME", home.c_str(), 1);
    Specialisation specialisation = specialise({{"k.cuh", "#include <cuda_fp16.h>\n"}});
    specialisation.toolkit_headers = true;
    const manifest::Digest key = cubin_key(specialisation, compiler);
    unsetenv("CUDA_HOME");
    std::filesystem::remove_all(home.parent_path());
    return key;
  };
  const manifest::Digest key = key_with(toolkit("a", "int x;\n"));
  CHECK(key == key_with(toolkit("b", "int x;\n")));
  CHECK(key != key_with(toolkit("a", "int y;\n")));
}

TEST_CASE("a toolkit header that changes on disk changes the key of sources that were seen before") {
  const auto root = std::filesystem::temp_directory_path() / ("kiln_toolkit_" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "include");
  setenv("CUDA_HOME", root.c_str(), 1);
  Specialisation specialisation = specialise({{"k.cuh", "#include <cuda_fp16.h>\n"}});
  specialisation.toolkit_headers = true;
  const auto key_with = [&](const char* text) {
    std::ofstream(root / "include/cuda_fp16.h") << text;
    return cubin_key(specialisation, compiler);
  };
  const manifest::Digest key = key_with("int x;\n");
  CHECK(cubin_key(specialisation, compiler) == key);
  CHECK(key_with("int xy;\n") != key);
  CHECK(key_with("int x;\n") == key);
  unsetenv("CUDA_HOME");
  std::filesystem::remove_all(root);
}

TEST_CASE("targets are the most specific that the compiler knows") {
  CHECK(default_arch(80) == "sm_80");
  CHECK(default_arch(90) == "sm_90a");
}

TEST_CASE("what NVRTC can compile for is asked of NVRTC" * doctest::skip(!has_nvrtc())) {
  CHECK(default_arch(89) == "sm_89");
  CHECK(!supported_archs().empty());
  CHECK(thrown_by([] { default_arch(990); }).kind() == ErrorKind::compile_failed);
  CHECK(holds(compiler_identity(), "nvrtc "));
  CHECK(holds(compiler_identity(), " build "));
}

// kiln check and kiln new, run as a person runs them; tests/check has what they find.
#include "command.hpp"

using namespace kiln::testing;

TEST_CASE("a new op is checked without a mistake, and one made in it is named on the first line") {
  const Command command;
  const std::string folder = command.path("ops");
  const Ran made = command.run("new scale " + folder);
  CHECK(made.status == 0);
  CHECK(made.output.find("kiln check " + folder + "/scale") != std::string::npos);
  check_refused(command.run("new scale " + folder), 2, "is there already; name another op");
  check_refused(command.run("new a-b " + folder), 2, "expected a letter or underscore, then letters, digits");

  const Ran good = command.run("check " + folder + " --no-compile --arch sm_90a,sm_80,sm_86");
  CAPTURE(good.output);
  CHECK(good.status == 0);
  CHECK(good.output.find("vectorized at count=4096 dtype=bf16, sm_86: 36 configs, 36 legal") != std::string::npos);
  CHECK(good.output.find("scale: 0 errors, 0 warnings; nothing was compiled\n") != std::string::npos);
  check_refused(command.run("check " + folder), 3,
                "kernels were not compiled, and --no-compile leaves them out: a compile is needed, but "
                "KILN_NVRTC_LIBRARY=none hides NVRTC");

  REQUIRE(std::system(("sed -i 's/threads = 256/threads = 96/' " + folder + "/scale/vectorized.toml").c_str()) == 0);
  const Ran wrong = command.run("check scale --no-compile --templates " + folder);
  CHECK(wrong.status == 1);
  CHECK(wrong.output.find("/scale/vectorized.toml:17: error: found threads = 96 in [default]; expected one of") !=
        std::string::npos);
  CHECK(wrong.output.find("1 error, 0 warnings") != std::string::npos);
  const Ran json = command.run("--json check scale --no-compile --templates " + folder);
  CHECK(json.output.find("{\"event\":\"finding\",\"severity\":\"error\",\"kind\":\"manifest\",\"file\":") == 0);
  CHECK(json.output.find("{\"event\":\"checked\",\"ops\":1,\"errors\":1,\"warnings\":0,\"compiles\":0}") !=
        std::string::npos);
}

TEST_CASE("a word with a slash is a path, and never an op of the template folders") {
  const Command command;
  const std::string installed = command.path("installed"), own = command.path("own");
  REQUIRE(command.run("new scale " + installed).status == 0);
  REQUIRE(command.run("new scale " + own).status == 0);
  REQUIRE(std::system(("sed -i 's/threads = 256/threads = 96/' " + own + "/scale/vectorized.toml").c_str()) == 0);
  const auto checked = [&](const std::string& what, const std::string& folder) {
    return command.run("check " + what + " --no-compile --templates " + installed, "cd " + folder + " && ");
  };
  for (const char* path : {"./scale", "../own/scale", "."}) {
    const Ran ran = checked(path, own);
    CAPTURE(path);
    CAPTURE(ran.output);
    CHECK(ran.status == 1);
    CHECK(ran.output.find("vectorized.toml:17: error: found threads = 96") != std::string::npos);
  }
  CHECK(checked("scale", own).status == 0);  // a name: the op of --templates
  check_refused(checked("./scale", command.path("")), 2, "there is no folder './scale'");
}

TEST_CASE("an op that is not found is said to need its folder's folder, which is named where the op is here") {
  const Command command;
  const char* const needs =
      "; an op of your own needs --templates or KILN_TEMPLATE_PATH, with the folder that holds its folder; there are ";
  check_refused(command.run("explain mine count=1"), 2, std::string("there is no op 'mine'") + needs);
  check_refused(command.run("check nofolder"), 2, std::string("there is no op or folder 'nofolder'") + needs);
  REQUIRE(command.run("new mine " + command.path("")).status == 0);
  const std::string here = "cd " + command.path("") + " && ";
  check_refused(command.run("explain mine count=1", here), 2,
                "there is no op 'mine'; its folder is here: give --templates .; there are ");
  CHECK(command.run("explain mine count=1 --templates .", here).status == 0);
}

TEST_CASE("a new op is refused a name that would not compile, or that would hide another op, and nothing is written") {
  const Command command;
  const auto refused = [&](const std::string& name, const std::string& why) {
    CAPTURE(name);
    check_refused(command.run("new " + name + " " + command.path("")), 2, why);
    CHECK(!std::filesystem::exists(command.path(name)));
  };
  refused("reference", "the op's source and its reference would both be reference.cuh; name another op");
  refused("9x", "an op named '9x'; expected a letter or underscore, then letters, digits and underscores, at most 64");
  for (const char* name : {"int", "wchar_t", "co_await", "requires", "not", "import"})
    refused(name, "the op's kernel would have its name, and '" + std::string(name) +
                      "' is a keyword of C++; name another op");
  for (const char* name : {"__global__", "a__b", "_Bool"}) refused(name, "is reserved by C++ for its compilers");
  for (const char* name : {"threadIdx", "dim3", "size_t", "NULL", "cudaStream_t"}) refused(name, "is a name of CUDA");
  for (const char* name : {"T", "Vector", "kiln", "main"}) refused(name, "is a name in the sources that are written");
  refused("gemm", "there is an op 'gemm' already, which this one would hide; name another op");
  const std::string before = "KILN_TEMPLATE_PATH=" + command.path("") + " ";
  REQUIRE(command.run("new mine " + command.path("")).status == 0);
  std::filesystem::create_directories(command.path("other"));
  check_refused(command.run("new mine " + command.path("other"), before), 2, "there is an op 'mine' already");
  CHECK(command.run("new cuda_x " + command.path("")).status == 0);
}

TEST_CASE("an op is checked from inside its folder by its own name") {
  const Command command;
  REQUIRE(command.run("new scale " + command.path("ops")).status == 0);
  for (const char* word : {".", "./", "../scale/.", "sub/.."}) {
    CAPTURE(word);
    const Ran checked =
        command.run("check --no-compile " + std::string(word),
                    "mkdir -p '" + command.path("ops/scale/sub") + "'; cd '" + command.path("ops/scale") + "'; ");
    CHECK_MESSAGE(checked.status == 0, checked.output);
    CHECK(checked.output.find("scale: 0 errors, 0 warnings; nothing was compiled\n") != std::string::npos);
  }
}

TEST_CASE("a new op leaves nothing of itself where it cannot be written, and its commands can be pasted") {
  const Command command;
  const std::string file = command.path("file", "text"), folder = command.path("my ops");
  check_refused(command.run("new scale " + file), 4, "file/scale' cannot be made: Not a directory");
  check_refused(command.run("new " + std::string(65, 'a')), 2, "the op's name has 65 characters, expected 64 at most");
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink("nowhere", folder + "/linked");
  check_refused(command.run("new linked '" + folder + "'"), 2, "is there already; name another op");
  const Ran unwritten = command.run("new scale '" + folder + "'", "ulimit -f 1; ");
  CHECK(unwritten.status == 4);
  CHECK_FALSE(std::filesystem::exists(folder + "/scale"));
  const Ran made = command.run("new scale '" + folder + "'");
  CHECK(made.status == 0);
  CHECK(made.output.find("  kiln check '" + folder + "/scale'\n") != std::string::npos);
  CHECK(made.output.find(" --templates '" + folder + "'\n") != std::string::npos);
}

TEST_CASE("sizes that are named and that nothing serves without a tune are a warning") {
  const Command command;
  REQUIRE(command.run("new scale " + command.path("")).status == 0);
  const std::string manifest = command.path("scale/vectorized.toml");
  REQUIRE(std::system(("sed -i 's/^all = \\[/all = [\"count % 32 == 0\", /' " + manifest).c_str()) == 0);
  const auto checked = [&](const std::string& words) {
    return command.run("check " + command.path("scale") + " " + words + " --no-compile").output;
  };
  const std::string odd = checked("count=100");
  CAPTURE(odd);
  CHECK(odd.find("/scale/op.toml:") != std::string::npos);
  CHECK(
      odd.find(
          "warning: nothing serves these sizes without a tune: vectorized: no config meets its constraints at count=100") !=
      std::string::npos);
  CHECK(odd.find("0 errors, 1 warning") != std::string::npos);
  CHECK(checked("count=96").find("0 errors, 0 warnings") != std::string::npos);
  CHECK(checked("").find("0 errors, 0 warnings") != std::string::npos);
}

TEST_CASE("check names what it cannot check, and what it would take") {
  const Command command;
  check_refused(command.run("check rmsnorm"), 2, "there is no op or folder 'rmsnorm' (did you mean 'rms_norm'?)");
  check_refused(command.run("check none/there"), 2, "there is no folder 'none/there'");
  check_refused(command.run("check rms_norm --device-class V900"), 2, "expected H200, H100, A100, L40S");
  check_refused(command.run("check rms_norm --arch sm_80a"), 2, "give --arch sm_80");
  check_refused(command.run("check rms_norm rwos=1"), 2, "'rwos' is unknown (did you mean 'rows'?)");
  CHECK(command.run("help check").output.find("Exit status 1 on an error") != std::string::npos);
  CHECK(command.run("ops rms_norm --device-class 4090").output.find("sm_89/mp128/") != std::string::npos);
  CHECK(command.run("ops rms_norm --arch sm_80").output.find("on sm_80/mp108/") != std::string::npos);
}

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "cuda/search_path.hpp"
#include "jit/specialisation.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;

TEST_CASE("a template becomes a cubin with its lowered names, for each architecture" * doctest::skip(!has_nvrtc())) {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    CAPTURE(arch);
    Specialisation specialisation = scale_kernel("3", arch);
    specialisation.name_expressions = {"scale<float, 3>", "", "scale<double, 5>"};
    const Cubin cubin = compile(specialisation);
    REQUIRE(cubin.image.size() > 4);
    CHECK(static_cast<char>(cubin.image[1]) == 'E');
    REQUIRE(cubin.lowered_names.size() == 3);
    CHECK(holds(cubin.lowered_names[0], "scaleIfLi3E"));
    CHECK(cubin.lowered_names[1].empty());
    CHECK(holds(cubin.lowered_names[2], "scaleIdLi5E"));
    CHECK(cubin.log.empty());
    CHECK(cubin.compile_time.count() > 0);
  }
}

TEST_CASE("two compiles give the same bytes, wherever the op lies" * doctest::skip(!has_nvrtc())) {
  Specialisation here = scale_kernel();
  here.options = {"-lineinfo"};
  edit_files(here, [](auto& files) {
    append(
        files[0],
        "__device__ const char* place() { return __FILE__; }\n__global__ void where(const char** p) { *p = place(); }\n");
  });
  here.name_expressions.emplace_back("where");
  Specialisation there = here;
  there.folder = "/another/place";
  CHECK(compile(here).image == compile(here).image);
  CHECK(compile(here).image == compile(there).image);
}

TEST_CASE("an error in a source names the user's file and line, in headers too" * doctest::skip(!has_nvrtc())) {
  Specialisation specialisation = scale_kernel();
  edit_files(specialisation, [](auto& files) { append(files[1], "\n__device__ int broken() { return nonsense; }\n"); });
  const Error error = thrown_by([&] { compile(specialisation); });
  CHECK(error.kind() == ErrorKind::compile_failed);
  CHECK(holds(error.what(), "/home/user/ops/scale/factor.cuh(5)"));
  CHECK(holds(error.what(), "nonsense"));
  CHECK(holds(error.what(), "scale/plain factor=3"));
  CHECK(holds(error.what(), "sm_80"));
}

TEST_CASE("code for a newer architecture, or for one in particular, is refused in a sentence" *
          doctest::skip(!has_nvrtc())) {
  const auto refused = [](const char* arch, const std::string& statement) {
    const std::string kernel = "template <int> __global__ void a(unsigned short* x, float y) { " + statement + " }";
    return std::string(thrown_by([&] { compile(specialise({{"a.cuh", kernel}}, {"a<1>"}, arch)); }).what());
  };
  const std::string bf16 = R"(asm volatile("cvt.rn.bf16.f32 %0, %1;" : "=h"(x[0]) : "f"(y));)";
  const std::string wgmma = R"(asm volatile("wgmma.fence.sync.aligned;" ::: "memory");)";
  CHECK(
      refused("sm_75", bf16) ==
      "compiling scale/plain factor=3 for sm_75 failed: its code has what sm_75 has not, such as .bf16; sm_80 or higher has "
      "it: choose another type or device");
  CHECK(
      refused("sm_90", wgmma) ==
      "compiling scale/plain factor=3 for sm_90 failed: its code has what sm_90 has not, such as wgmma.fence; sm_90a has "
      "what is particular to that architecture");
  CHECK(holds(refused("sm_75", bf16 + R"(asm volatile("no.such.thing;");)"), "ptxas"));
}

TEST_CASE("a name expression that does not resolve is named" * doctest::skip(!has_nvrtc())) {
  CHECK(holds(thrown_by([] { compile(scale_kernel("unheard_of")); }).what(), "unheard_of"));
}

TEST_CASE("a kernel whose register request ptxas ignored is rejected by the advisory's name" *
          doctest::skip(!has_nvrtc())) {
  const Specialisation specialisation =
      specialise({{"k.cuh",
                   "__global__ void k(float* p) {\n"
                   "  asm volatile(\"setmaxnreg.inc.sync.aligned.u32 232;\");\n  p[0] = 1;\n}\n"}},
                 {"k"}, "sm_90a");
  const Error error = thrown_by([&] { compile(specialisation); });
  CHECK(error.kind() == ErrorKind::compile_failed);
  CHECK(holds(error.what(), "C7508"));
}

TEST_CASE("an unknown option is an error that names it" * doctest::skip(!has_nvrtc())) {
  Specialisation specialisation = scale_kernel();
  specialisation.options = {"--no-such-option"};
  CHECK(holds(thrown_by([&] { compile(specialisation); }).what(), "--no-such-option"));
}

TEST_CASE("toolkit headers are found when an implementation asks for them, and only then" *
          doctest::skip(!has_nvrtc() || cuda::toolkit_include_directories().empty())) {
  Specialisation specialisation = specialise(
      {{"k.cuh", "#include <cuda_fp16.h>\n__global__ void k(__half* p) { p[0] = __float2half(1.0f); }\n"}}, {"k"});
  CHECK(thrown_by([&] { compile(specialisation); }).kind() == ErrorKind::compile_failed);
  specialisation.toolkit_headers = true;
  CHECK(compile(specialisation).image.size() > 0);
  CHECK(include_closure(specialisation).size() > 2);
}

TEST_CASE("ten compiles at once give what one gives" * doctest::skip(!has_nvrtc())) {
  const Cubin alone = compile(scale_kernel());
  std::vector<Cubin> cubins(10);
  {
    std::vector<std::jthread> threads;
    for (Cubin& cubin : cubins) threads.emplace_back([&cubin] { cubin = compile(scale_kernel()); });
  }
  for (const Cubin& cubin : cubins) CHECK(cubin.image == alone.image);
}

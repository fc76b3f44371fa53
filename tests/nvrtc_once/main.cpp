// The main of tests whose kernels nvrtc_once compiles: where there is no NVRTC behind it, they are skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda/nvrtc_api.hpp"
#include "faults/skip.hpp"

namespace {

constexpr int counts_as_skipped = 77;

/// What the library that KILN_NVRTC_LIBRARY names says is wrong with it, or an empty string; a test may name none at all.
std::string why_not() {
  using kiln::cuda::Nvrtc;
  const char* path = std::getenv("KILN_NVRTC_LIBRARY");
  void* library = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) return {};
  const auto version = reinterpret_cast<decltype(Nvrtc::nvrtcVersion)>(dlsym(library, "nvrtcVersion"));
  const auto words = reinterpret_cast<decltype(Nvrtc::nvrtcGetErrorString)>(dlsym(library, "nvrtcGetErrorString"));
  if (version == nullptr || words == nullptr) return {};
  int major = 0, minor = 0;
  const nvrtcResult result = version(&major, &minor);
  return result == NVRTC_SUCCESS ? std::string() : words(result);
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string reason = why_not(); !reason.empty()) {
    std::printf("Every test is skipped: no NVRTC. %s\n", reason.c_str());
    return counts_as_skipped;
  }
  return kiln::faults::exit_status(doctest::Context(argc, argv).run());
}

// Prints what the environment chooses for a program that uses Kiln, a line each.
#include <cstdio>
#include <filesystem>
#include <vector>

#include "cuda/library.hpp"
#include "cuda/search_path.hpp"
#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "process/child.hpp"
#include "store/custody.hpp"
#include "store/key_ring.hpp"
#include "store/layers.hpp"
#include "store/trust.hpp"

namespace {

void say(const char* what, const std::string& value) { std::printf("%s=%s\n", what, value.c_str()); }

void say(const char* what, const std::vector<std::filesystem::path>& paths) {
  for (const auto& each : paths) say(what, each.string());
}

}  // namespace

/// LeakSanitizer cannot look at a process with raised rights.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }  // NOLINT(bugprone-reserved-identifier)

/// `argv[1]`: a file, to be judged as an overlay.
int main(int argc, char** argv) {
  using namespace kiln;
  for (const char* each : {"KILN_CUDA_LIBRARY", "KILN_NVRTC_LIBRARY", "KILN_NVRTC_DIR", "KILN_CUBLASLT_LIBRARY",
                           "KILN_NCCL_LIBRARY", "KILN_TEAM_ADDRESS"})
    say("library", cuda::environment(each));
  const process::FoundWorker worker = process::look_for_worker({});
  say("worker", worker.program.lexically_normal().string());
  for (const std::string& each : worker.refused) say("refused", each);
  say("overlay", store::default_overlay().value_or("").string());
  say("trust", store::trust_policy({}) == TrustPolicy::owner ? "" : "signed");
  say("keys", store::key_folders({}));
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  say("op", ops.find("scale") ? "scale" : "");
  say("folder", cuda::toolkit_folders());
  say("folder", cuda::site_packages());
  if (argc > 1) say("objection", store::overlay_objection(argv[1]));
}

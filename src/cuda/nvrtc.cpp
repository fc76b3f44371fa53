#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/library.hpp"
#include "cuda/nvrtc_api.hpp"
#include "cuda/search_path.hpp"

namespace kiln::cuda {
namespace {

/// The NVRTC of the driver's major version first, wherever it is: a driver may refuse the code of a newer one. Without
/// a driver, the newest.
std::vector<std::string> names_by_preference() {
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12"};
  const int major = driver_version() / 1000;
  std::stable_partition(names.begin(), names.end(),
                        [&](const std::string& name) { return name.ends_with("." + std::to_string(major)); });
  return names;
}

std::vector<std::string> nvrtc_files() {
  const std::vector<std::string> names = names_by_preference();
  std::vector<std::string> all;
  if (const std::string folder = environment("KILN_NVRTC_DIR"); !folder.empty()) all = existing_files({folder}, names);
  for (const std::string& name : names)
    for (std::string& file : library_files({name}, {"lib64", "lib"}, {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}))
      all.push_back(std::move(file));
  return all;
}

constexpr LibrarySource nvrtc_source = {
    ErrorKind::no_nvrtc,
    "NVRTC",
    "a compile is needed, but KILN_NVRTC_LIBRARY=none hides NVRTC; unset it, or use a cache that holds the code",
    "a compile is needed and NVRTC could not be opened; install the CUDA toolkit or the Python package "
    "nvidia-cuda-nvrtc, or set KILN_NVRTC_LIBRARY to libnvrtc.so. Tried:",
    "; install NVRTC 12.0 or newer",
    nvrtc_files};

/// NVRTC opens its builtins library by bare name at its first compile. Loading it here from NVRTC's own folder makes
/// that succeed without a run path. Throws Error(no_nvrtc) for a shortage that may pass.
void open_builtins(const Nvrtc& nvrtc) {
  const std::string name = "libnvrtc-builtins.so." + std::to_string(nvrtc.major) + "." + std::to_string(nvrtc.minor);
  const auto files = existing_files({std::filesystem::path(nvrtc.path).parent_path()}, {name});
  std::string tried;
  if (files.empty() || Library::open(files, tried) || passing_shortage(tried).empty()) return;
  throw Error(ErrorKind::no_nvrtc, "a compile is needed and NVRTC's builtins could not be opened. Tried:" + tried);
}

}  // namespace

Nvrtc Nvrtc::open(const std::string& library_path) {
  const Library library = Library::open(nvrtc_source, library_path);
  Nvrtc nvrtc;
  library.resolve(nvrtc_source, "nvrtcGetErrorString", nvrtc.nvrtcGetErrorString);
#define KILN_RESOLVE(symbol, parameters) library.resolve(nvrtc_source, #symbol, nvrtc.symbol);
  KILN_NVRTC_FUNCTIONS(KILN_RESOLVE)
#undef KILN_RESOLVE
  if (const nvrtcResult result = nvrtc.nvrtcVersion(&nvrtc.major, &nvrtc.minor); result != NVRTC_SUCCESS)
    library.refuse(nvrtc_source, std::string("cannot be used: nvrtcVersion gave ") + nvrtc.nvrtcGetErrorString(result));
  nvrtc.path = library.path();
  nvrtc.build_id = library.build_id();
  open_builtins(nvrtc);
  return nvrtc;
}

constexpr const char* nvrtc_variable = "KILN_NVRTC_LIBRARY";
const Nvrtc& Nvrtc::get() { return opened<Nvrtc>(nvrtc_variable).get(); }
const Nvrtc* Nvrtc::find() noexcept { return opened<Nvrtc>(nvrtc_variable).find(); }
bool Nvrtc::choose(const std::string& library) {
  if (opened<Nvrtc>(nvrtc_variable).choose(library)) return true;
  std::error_code ignored;
  return std::filesystem::equivalent(get().path, library, ignored);
}

void Nvrtc::forget_failed_choice() { opened<Nvrtc>(nvrtc_variable).forget_failed_choice(); }

std::string why_newer_than_driver(const Nvrtc& nvrtc) {
  const int driver = driver_version();
  const auto version = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  if (driver == 0 || nvrtc.major <= driver / 1000) return {};
  return "NVRTC " + version(nvrtc.major, nvrtc.minor) + " (" + nvrtc.path + ") is newer than the driver, of CUDA " +
         version(driver / 1000, driver % 1000 / 10) + ", which may refuse its code; install NVRTC " +
         std::to_string(driver / 1000) + ", as the Python package nvidia-cuda-nvrtc has it, or a newer driver";
}

}  // namespace kiln::cuda

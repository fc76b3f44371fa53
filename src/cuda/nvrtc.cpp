#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/library.hpp"
#include "cuda/nvrtc_api.hpp"
#include "cuda/search_path.hpp"
#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

/// The NVRTC of the driver's major version first, wherever it is: a driver may refuse the code of a newer one. Without a driver, the newest.
std::vector<std::string> names_by_preference() {
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12"};
  const int major = driver_version() / 1000;
  std::stable_partition(names.begin(), names.end(),
                        [&](const std::string& name) { return name.ends_with("." + std::to_string(major)); });
  return names;
}

std::vector<std::string> candidates() {
  const std::vector<std::string> names = names_by_preference();
  std::vector<std::filesystem::path> folders;
  for (const auto& folder : toolkit_folders()) folders.insert(folders.end(), {folder / "lib64", folder / "lib"});
  for (const auto& folder : wheel_folders({"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"})) folders.push_back(folder);
  std::vector<std::string> all;
  if (const std::string folder = environment("KILN_NVRTC_DIR"); !folder.empty()) all = existing_files({folder}, names);
  for (const std::string& name : names) {
    all.push_back(name);
    for (std::string& file : existing_files(folders, {name})) all.push_back(std::move(file));
  }
  return all;
}

/// NVRTC opens its builtins library by bare name at its first compile. Loading it here from NVRTC's own folder makes
/// that succeed without a run path. Throws Error(no_nvrtc) for a shortage that may pass.
void open_builtins(const Nvrtc& nvrtc) {
  const std::string name = "libnvrtc-builtins.so." + std::to_string(nvrtc.major) + "." + std::to_string(nvrtc.minor);
  const auto files = existing_files({std::filesystem::path(nvrtc.path).parent_path()}, {name});
  std::string tried;
  if (files.empty() || Library::open(files, tried) || passing_shortage(tried).empty()) return;
  throw Error(ErrorKind::no_nvrtc, "A compile is needed and NVRTC's builtins could not be opened. Tried:" + tried);
}

template <typename Function>
void resolve(const Library& library, const char* symbol, Function& function) {
  function = library.function<Function>(symbol);
  if (function == nullptr) {
    throw Error(ErrorKind::no_nvrtc,
                "NVRTC at " + library.path() + " lacks " + symbol + "; install NVRTC 12.0 or newer.");
  }
}

OpenedOnce<Nvrtc>& opened() noexcept {
  // Never destroyed: owners of handles may live as long as the process.
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory for a table there is nothing to report to
  static auto& once = *new OpenedOnce<Nvrtc>("KILN_NVRTC_LIBRARY");
  return once;
}

}  // namespace

Nvrtc Nvrtc::open(const std::string& library_path) {
  if (library_path == "none") {
    throw Error(
        ErrorKind::no_nvrtc,
        "A compile is needed, but KILN_NVRTC_LIBRARY=none hides NVRTC; unset it, or use a cache that holds the code.");
  }
  std::string tried;
  const std::optional<Library> library =
      Library::open(library_path.empty() ? candidates() : std::vector<std::string>{library_path}, tried);
  if (!library) {
    throw Error(ErrorKind::no_nvrtc,
                "A compile is needed and NVRTC could not be opened; install the CUDA toolkit or the "
                "Python package nvidia-cuda-nvrtc, or set KILN_NVRTC_LIBRARY to libnvrtc.so. Tried:" +
                    tried);
  }
  Nvrtc nvrtc;
  resolve(*library, "nvrtcGetErrorString", nvrtc.nvrtcGetErrorString);
#define KILN_RESOLVE(symbol, parameters) resolve(*library, #symbol, nvrtc.symbol);
  KILN_NVRTC_FUNCTIONS(KILN_RESOLVE)
#undef KILN_RESOLVE
  if (const nvrtcResult result = nvrtc.nvrtcVersion(&nvrtc.major, &nvrtc.minor); result != NVRTC_SUCCESS) {
    throw Error(ErrorKind::no_nvrtc, "NVRTC at " + library->path() + " cannot be used: nvrtcVersion gave " +
                                         nvrtc.nvrtcGetErrorString(result));
  }
  nvrtc.path = library->path();
  nvrtc.build_id = library->build_id();
  open_builtins(nvrtc);
  return nvrtc;
}

const Nvrtc& Nvrtc::get() { return opened().get(); }
const Nvrtc* Nvrtc::find() noexcept { return opened().find(); }
void Nvrtc::choose(const std::string& library) { opened().choose(library); }

std::string why_newer_than_driver(const Nvrtc& nvrtc) {
  const int driver = driver_version();
  const auto version = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  if (driver == 0 || nvrtc.major <= driver / 1000) return {};
  return "NVRTC " + version(nvrtc.major, nvrtc.minor) + " (" + nvrtc.path + ") is newer than the driver, of CUDA " +
         version(driver / 1000, driver % 1000 / 10) + ", which may refuse its code; install NVRTC " +
         std::to_string(driver / 1000) + ", as the Python package nvidia-cuda-nvrtc has it, or a newer driver";
}

}  // namespace kiln::cuda

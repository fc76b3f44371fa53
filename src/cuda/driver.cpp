#include <string_view>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/driver_api.hpp"
#include "cuda/library.hpp"
#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

constexpr bool required = true, optional = false;

constexpr LibrarySource driver_source = {
    ErrorKind::no_driver, "the CUDA driver",
    "a CUDA driver was asked for, but KILN_CUDA_LIBRARY=none hides it; unset it to use a GPU",
    "no CUDA driver could be opened; install NVIDIA driver 525 or newer, or set KILN_CUDA_LIBRARY to its libcuda.so.1. "
    "Tried:",
    ", so it is older than CUDA 12; install NVIDIA driver 525 or newer",
    // WSL keeps the driver in the second place, outside the loader's path.
    [] {
      return std::vector<std::string>{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
    }};

/// Older drivers export one function without its version suffix, with the same parameters.
const char* name_in(const Library& library, const char* symbol) {
  const bool is_older =
      symbol == std::string_view("cuEventElapsedTime_v2") && library.function<void*>(symbol) == nullptr;
  return is_older ? "cuEventElapsedTime" : symbol;
}

void initialise(const Driver& driver) {
  const CUresult result = driver.cuInit(0);
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver.cuGetErrorName(result, &name);
  const std::string found = driver.path() + ": cuInit gave " + (name != nullptr ? name : std::to_string(result));
  if (result == CUDA_ERROR_NO_DEVICE) {
    throw Error(ErrorKind::no_device, "the CUDA driver sees no GPU (" + found +
                                          "); check nvidia-smi and CUDA_VISIBLE_DEVICES, or give the container a GPU");
  }
  if (result == CUDA_ERROR_STUB_LIBRARY) {
    throw Error(ErrorKind::no_driver, "the CUDA driver is only the toolkit's link-time stub (" + found +
                                          "); remove it from LD_LIBRARY_PATH and install an NVIDIA driver");
  }
  throw Error(ErrorKind::no_driver, "the CUDA driver cannot be initialised (" + found +
                                        "); check that the kernel module is loaded and matches libcuda (nvidia-smi)");
}

}  // namespace

Driver Driver::open(const std::string& library_path) {
  const Library library = Library::open(driver_source, library_path);
  Driver driver;
  driver.path_ = library.path();
#define KILN_RESOLVE(presence, symbol, parameters) \
  library.resolve(driver_source, name_in(library, #symbol), driver.symbol, presence);
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_RESOLVE)
#undef KILN_RESOLVE
  initialise(driver);
  return driver;
}

const Driver& Driver::get() { return opened<Driver>("KILN_CUDA_LIBRARY").get(); }
const Driver* Driver::find() noexcept { return opened<Driver>("KILN_CUDA_LIBRARY").find(); }

std::string describe(CUresult result) {
  std::string found = "CUDA error " + std::to_string(static_cast<unsigned int>(result));
  if (const Driver* driver = Driver::find()) {
    const char* name = nullptr;
    const char* description = nullptr;
    driver->cuGetErrorName(result, &name);
    driver->cuGetErrorString(result, &description);
    if (name != nullptr) found = name;
    if (description != nullptr) found += " (" + std::string(description) + ")";
  }
  return found;
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const ErrorKind kind = result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::out_of_memory : ErrorKind::driver_failed;
  throw Error(kind, std::string(what) + ": " + describe(result));
}

}  // namespace kiln::cuda

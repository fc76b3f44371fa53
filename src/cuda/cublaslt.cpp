#include "cuda/cublaslt_api.hpp"

#include <map>
#include <mutex>

#include "cuda/device.hpp"
#include "cuda/library.hpp"
#include "cuda/search_path.hpp"

namespace kiln::cuda {
namespace {

constexpr LibrarySource cublaslt_source = {
    ErrorKind::no_cublaslt,
    "cuBLASLt",
    "cuBLASLt is asked for, but KILN_CUBLASLT_LIBRARY=none hides it; unset it to use the library",
    "cuBLASLt could not be opened; install the CUDA toolkit's libcublas or the Python package nvidia-cublas, or set "
    "KILN_CUBLASLT_LIBRARY to libcublasLt.so. Tried:",
    "; install cuBLAS 12.0 or newer",
    [] {
      return library_files({"libcublasLt.so.13", "libcublasLt.so.12"}, {"lib64"},
                           {"nvidia/cu13/lib", "nvidia/cublas/lib"});
    }};

}  // namespace

CublasLt CublasLt::open(const std::string& library_path) {
  const Library library = Library::open(cublaslt_source, library_path);
  CublasLt table;
  library.resolve(cublaslt_source, "cublasLtGetVersion", table.cublasLtGetVersion);
#define KILN_RESOLVE(symbol, parameters) library.resolve(cublaslt_source, #symbol, table.symbol);
  KILN_CUBLASLT_FUNCTIONS(KILN_RESOLVE)
#undef KILN_RESOLVE
  table.version = version_text(table.cublasLtGetVersion());
  table.path = library.path();
  return table;
}

const CublasLt& CublasLt::get() { return opened<CublasLt>("KILN_CUBLASLT_LIBRARY").get(); }
const CublasLt* CublasLt::find() noexcept { return opened<CublasLt>("KILN_CUBLASLT_LIBRARY").find(); }

cublasLtHandle_t CublasLt::handle() {
  CUdevice device = 0;
  if (const auto function = Driver::get().cuCtxGetDevice) check(function(&device), "asking for the current device");
  static std::mutex making;
  static auto* const by_device = new std::map<CUdevice, cublasLtHandle_t>;  // engines outlive static objects
  const std::lock_guard lock(making);
  cublasLtHandle_t& handle = (*by_device)[device];
  if (handle != nullptr) return handle;
  if (const cublasStatus_t status = get().cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS) {
    handle = nullptr;
    throw Error(ErrorKind::no_cublaslt,
                "cuBLASLt at " + get().path + " cannot be used: cublasLtCreate gave " + describe(status));
  }
  return handle;
}

std::string describe(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "cuBLAS status " + std::to_string(static_cast<unsigned int>(status));
}

}  // namespace kiln::cuda

#include <optional>
#include <vector>

#include "cuda/cublaslt_api.hpp"
#include "cuda/library.hpp"
#include "cuda/search_path.hpp"
#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

std::vector<std::string> candidates() {
  const std::vector<std::string> names = {"libcublasLt.so.13", "libcublasLt.so.12"};
  std::vector<std::string> all = names;
  std::vector<std::filesystem::path> folders;
  for (const auto& folder : toolkit_folders()) folders.push_back(folder / "lib64");
  for (auto& folder : wheel_folders({"nvidia/cu13/lib", "nvidia/cublas/lib"})) folders.push_back(std::move(folder));
  for (std::string& file : existing_files(folders, names)) all.push_back(std::move(file));
  return all;
}

template <typename Function>
void resolve(const Library& library, const char* symbol, Function& function) {
  function = library.function<Function>(symbol);
  if (function == nullptr) {
    throw Error(ErrorKind::no_cublaslt,
                "cuBLASLt at " + library.path() + " lacks " + symbol + "; install cuBLAS 12.0 or newer.");
  }
}

/// `version` is major * 10000 + minor * 100 + patch.
std::string version_text(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

OpenedOnce<CublasLt>& opened() noexcept {
  // Never destroyed: plans may live until the process ends.
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): no memory for a table: the process cannot go on
  static auto& once = *new OpenedOnce<CublasLt>("KILN_CUBLASLT_LIBRARY");
  return once;
}

}  // namespace

CublasLt CublasLt::open(const std::string& library_path) {
  if (library_path == "none") {
    throw Error(ErrorKind::no_cublaslt,
                "cuBLASLt is asked for, but KILN_CUBLASLT_LIBRARY=none hides it; unset it to use the library.");
  }
  std::string tried;
  const std::optional<Library> library =
      Library::open(library_path.empty() ? candidates() : std::vector<std::string>{library_path}, tried);
  if (!library) {
    throw Error(ErrorKind::no_cublaslt,
                "cuBLASLt could not be opened; install the CUDA toolkit's libcublas or the Python package "
                "nvidia-cublas, or set KILN_CUBLASLT_LIBRARY to libcublasLt.so. Tried:" +
                    tried);
  }
  CublasLt table;
  resolve(*library, "cublasLtGetVersion", table.cublasLtGetVersion);
#define KILN_RESOLVE(symbol, parameters) resolve(*library, #symbol, table.symbol);
  KILN_CUBLASLT_FUNCTIONS(KILN_RESOLVE)
#undef KILN_RESOLVE
  table.version = version_text(table.cublasLtGetVersion());
  table.path = library->path();
  return table;
}

const CublasLt& CublasLt::get() { return opened().get(); }
const CublasLt* CublasLt::find() noexcept { return opened().find(); }

cublasLtHandle_t CublasLt::handle() {
  static const cublasLtHandle_t made = [] {
    cublasLtHandle_t handle = nullptr;
    const cublasStatus_t status = get().cublasLtCreate(&handle);
    if (status == CUBLAS_STATUS_SUCCESS) return handle;
    throw Error(ErrorKind::no_cublaslt,
                "cuBLASLt at " + get().path + " cannot be used: cublasLtCreate gave " + describe(status));
  }();
  return made;
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

#include <optional>
#include <vector>

#include "cuda/library.hpp"
#include "cuda/nccl_api.hpp"
#include "cuda/search_path.hpp"
#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

std::vector<std::string> candidates() {
  std::vector<std::string> all = {"libnccl.so.2"};
  std::vector<std::filesystem::path> folders = wheel_folders({"nvidia/nccl/lib"});
  for (const auto& folder : toolkit_folders()) folders.insert(folders.begin(), folder / "lib64");
  for (std::string& file : existing_files(folders, {"libnccl.so.2"})) all.push_back(std::move(file));
  return all;
}

template <typename Function>
void resolve(const Library& library, const char* symbol, Function& function) {
  function = library.function<Function>(symbol);
  if (function == nullptr) {
    throw Error(ErrorKind::no_nccl, "NCCL at " + library.path() + " lacks " + symbol + "; install NCCL 2.18 or newer.");
  }
}

const OpenedOnce<Nccl>& opened() noexcept {
  // Never destroyed: owners of handles may live as long as the process.
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory for a table there is nothing to report to
  static const auto& once = *new OpenedOnce<Nccl>("KILN_NCCL_LIBRARY");
  return once;
}

}  // namespace

Nccl Nccl::open(const std::string& library_path) {
  if (library_path == "none") {
    throw Error(ErrorKind::no_nccl, "A collective is needed, but KILN_NCCL_LIBRARY=none hides NCCL; unset it.");
  }
  std::string tried;
  const std::optional<Library> library =
      Library::open(library_path.empty() ? candidates() : std::vector<std::string>{library_path}, tried);
  if (!library) {
    throw Error(ErrorKind::no_nccl,
                "A collective is needed and NCCL could not be opened; install libnccl2 or the Python "
                "package nvidia-nccl, or set KILN_NCCL_LIBRARY to libnccl.so.2. Tried:" +
                    tried);
  }
  Nccl nccl;
  resolve(*library, "ncclGetErrorString", nccl.ncclGetErrorString);
#define KILN_RESOLVE(symbol, parameters) resolve(*library, #symbol, nccl.symbol);
  KILN_NCCL_FUNCTIONS(KILN_RESOLVE)
#undef KILN_RESOLVE
  nccl.ncclGetVersion(&nccl.version);
  nccl.path = library->path();
  return nccl;
}

const Nccl& Nccl::get() { return opened().get(); }
const Nccl* Nccl::find() noexcept { return opened().find(); }

}  // namespace kiln::cuda

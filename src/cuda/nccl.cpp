#include <optional>
#include <vector>

#include "cuda/library.hpp"
#include "cuda/nccl_api.hpp"
#include "cuda/search_path.hpp"
#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

/// The loader gives a libnccl.so.2 that the process has loaded from anywhere, which made the process's communicators.
std::vector<std::string> candidates() {
  const std::string name = "libnccl.so.2";
  std::vector<std::string> all = {name};
  std::vector<std::filesystem::path> folders;
  for (const auto& folder : toolkit_folders()) folders.push_back(folder / "lib64");
  for (auto& folder : wheel_folders({"nvidia/nccl/lib"})) folders.push_back(std::move(folder));
  for (std::string& file : existing_files(folders, {name})) all.push_back(std::move(file));
  return all;
}

template <typename Function>
void resolve(const Library& library, const char* symbol, Function& function) {
  function = library.function<Function>(symbol);
  if (function == nullptr) {
    throw Error(ErrorKind::no_nccl, "NCCL at " + library.path() + " lacks " + symbol + "; install NCCL 2.14 or newer.");
  }
}

OpenedOnce<Nccl>& opened() noexcept {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): no memory for a table: the process cannot go on
  static auto& once = *new OpenedOnce<Nccl>("KILN_NCCL_LIBRARY");
  return once;
}

}  // namespace

Nccl Nccl::open(const std::string& library_path) {
  if (library_path == "none") {
    throw Error(ErrorKind::no_nccl,
                "NCCL is asked for, but KILN_NCCL_LIBRARY=none hides it; unset it to use the library.");
  }
  std::string tried;
  const std::optional<Library> library =
      Library::open(library_path.empty() ? candidates() : std::vector<std::string>{library_path}, tried);
  if (!library) {
    throw Error(ErrorKind::no_nccl,
                "NCCL could not be opened; install libnccl2 or the Python package nvidia-nccl, or set "
                "KILN_NCCL_LIBRARY to libnccl.so.2. Tried:" +
                    tried);
  }
  Nccl table;
  resolve(*library, "ncclGetErrorString", table.ncclGetErrorString);
#define KILN_RESOLVE(symbol, parameters) resolve(*library, #symbol, table.symbol);
  KILN_NCCL_FUNCTIONS(KILN_RESOLVE)
#undef KILN_RESOLVE
  if (const ncclResult_t result = table.ncclGetVersion(&table.version); result != ncclSuccess) {
    throw Error(ErrorKind::no_nccl, "NCCL at " + library->path() + " cannot be used: ncclGetVersion gave " +
                                        table.ncclGetErrorString(result));
  }
  table.path = library->path();
  return table;
}

const Nccl& Nccl::get() { return opened().get(); }
const Nccl* Nccl::find() noexcept { return opened().find(); }

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace kiln::cuda

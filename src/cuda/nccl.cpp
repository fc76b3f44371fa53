#include "cuda/library.hpp"
#include "cuda/nccl_api.hpp"
#include "cuda/search_path.hpp"

namespace kiln::cuda {
namespace {

constexpr LibrarySource nccl_source = {
    ErrorKind::no_nccl, "NCCL", "NCCL is asked for, but KILN_NCCL_LIBRARY=none hides it; unset it to use the library",
    "NCCL could not be opened; install libnccl2 or the Python package nvidia-nccl, or set KILN_NCCL_LIBRARY to "
    "libnccl.so.2. Tried:",
    "; install NCCL 2.14 or newer",
    // The loader gives a libnccl.so.2 that the process has loaded from anywhere, which made the process's
    // communicators.
    [] { return library_files({"libnccl.so.2"}, {"lib64"}, {"nvidia/nccl/lib"}); }};

}  // namespace

Nccl Nccl::open(const std::string& library_path) {
  const Library library = Library::open(nccl_source, library_path);
  Nccl table;
  library.resolve(nccl_source, "ncclGetErrorString", table.ncclGetErrorString);
#define KILN_RESOLVE(symbol, parameters) library.resolve(nccl_source, #symbol, table.symbol);
  KILN_NCCL_FUNCTIONS(KILN_RESOLVE)
#undef KILN_RESOLVE
  int version = 0;
  if (const ncclResult_t result = table.ncclGetVersion(&version); result != ncclSuccess)
    library.refuse(nccl_source, std::string("cannot be used: ncclGetVersion gave ") + table.ncclGetErrorString(result));
  table.version = version_text(static_cast<std::size_t>(version));
  table.path = library.path();
  return table;
}

const Nccl& Nccl::get() { return opened<Nccl>("KILN_NCCL_LIBRARY").get(); }
const Nccl* Nccl::find() noexcept { return opened<Nccl>("KILN_NCCL_LIBRARY").find(); }

}  // namespace kiln::cuda

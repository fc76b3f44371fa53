#include "manifest/keep_loaded.hpp"

#include <dlfcn.h>

namespace kiln::manifest {

void keep_library_loaded() noexcept {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&keep_library_loaded), &here) != 0)
    dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace kiln::manifest

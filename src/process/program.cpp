#include "process/program.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace kiln::process {
namespace {

namespace fs = std::filesystem;

fs::path folder_of_this_library() {
  static const int here = 0;
  Dl_info info{};
  return dladdr(&here, &info) != 0 && info.dli_fname != nullptr ? fs::path(info.dli_fname).parent_path() : fs::path();
}

}  // namespace

fs::path find_worker(const fs::path& chosen) {
  if (!chosen.empty()) return chosen;
  if (const char* named = std::getenv("KILN_WORKER"); named != nullptr && *named != '\0')
    return std::string_view(named) == "none" ? fs::path() : fs::path(named);
  std::error_code ignored;
  const fs::path library = folder_of_this_library();
  for (const fs::path& folder : {fs::read_symlink("/proc/self/exe", ignored).parent_path(), library, library / "../bin",
                                 library / "../../bin", fs::path(KILN_INSTALLED_PROGRAMS)}) {
    fs::path program = folder / "kiln-worker";
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

}  // namespace kiln::process

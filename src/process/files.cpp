#include "process/files.hpp"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace kiln::process {

namespace fs = std::filesystem;

fs::path running_program() {
  std::error_code failure;
  fs::path program = fs::read_symlink("/proc/self/exe", failure);
  return failure ? started_program() : program;
}

fs::path started_program() {
  const auto* const started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  // A relative path may have come to name another program: the working directory changes.
  if (started == nullptr || *started != '/') return {};
  std::error_code failure;
  fs::path program = fs::canonical(started, failure);
  return failure ? fs::path() : program;
}

fs::path mapped_file(const void* address) {
  const auto sought = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {  // "begin-end rights offset device inode  path"
    std::istringstream fields(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    fields >> std::hex >> begin >> dash >> end;
    if (!fields || sought < begin || sought >= end) continue;
    const std::size_t path = line.find('/');
    return path == std::string::npos ? fs::path() : fs::path(line.substr(path));
  }
  return {};
}

fs::path file_of_this_library() {
  static const int here = 0;
  Dl_info info{};
  // The loader has the first word of a program's command line as its name, which need not be a path.
  if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr ||
      std::string_view(info.dli_fname).find('/') == std::string_view::npos)
    return running_program();
  // As it was opened: a relative path is from a working directory that the program may have left since.
  fs::path opened = info.dli_fname;
  if (opened.is_absolute()) return opened;
  if (fs::path mapped = mapped_file(&here); !mapped.empty()) return mapped;
  std::error_code ignored;
  return fs::absolute(opened, ignored);
}

}  // namespace kiln::process

#include "process/files.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/auxv.h>

#include <cstdlib>
#include <filesystem>

using namespace kiln::process;
namespace fs = std::filesystem;

TEST_CASE("the program is found without /proc too, unless it was started by a relative path") {
  CHECK(fs::equivalent(running_program(), "/proc/self/exe"));
  const fs::path started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  CHECK(started_program() == (started.is_absolute() ? running_program() : fs::path()));
}

TEST_CASE("a library that was opened by a relative path is found after the working directory has changed") {
  const fs::path before = fs::current_path();
  std::string folder = (fs::temp_directory_path() / "kiln files-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  fs::current_path(folder);
  fs::create_directory("lib");
  Dl_info libm{};
  REQUIRE(dladdr(reinterpret_cast<void*>(dlsym(RTLD_DEFAULT, "floor")), &libm) != 0);
  fs::copy_file(libm.dli_fname, "lib/libcopy.so");
  void* const copy = dlopen("lib/libcopy.so", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(copy != nullptr);
  const void* const inside = dlsym(copy, "floor");
  fs::current_path("/");
  CHECK(mapped_file(inside) == fs::path(folder) / "lib/libcopy.so");
  CHECK(dlclose(copy) == 0);
  CHECK(mapped_file(nullptr).empty());
  fs::current_path(before);
  fs::remove_all(folder);
}

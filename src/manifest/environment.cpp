#include "manifest/environment.hpp"

#include <sys/auxv.h>

#include <cstdlib>

namespace kiln::manifest {

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value != nullptr ? value : "";
}

bool has_variable(const char* name) noexcept { return secure_getenv(name) != nullptr; }

bool has_raised_rights() noexcept { return getauxval(AT_SECURE) != 0; }

}  // namespace kiln::manifest

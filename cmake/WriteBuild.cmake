# Writes OUTPUT, a C++ source that holds the build's name, when the name has changed: the commit of SOURCE, with -dirty where tracked files
# differ from it. Outside of a checkout of its own the name is GIVEN, or "unknown".
set(name "${GIVEN}")
execute_process(COMMAND git -C "${SOURCE}" rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(REAL_PATH "${SOURCE}" source)
if(top AND top STREQUAL source)
  execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --exclude=* OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE
                                                                                 ERROR_QUIET)
  if(described)
    set(name "${described}")
  endif()
endif()
if(NOT name)
  set(name unknown)
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT [[#include "cli/build.hpp"

namespace kiln {

std::string_view build() noexcept { return "@name@"; }

}  // namespace kiln
]] @ONLY)

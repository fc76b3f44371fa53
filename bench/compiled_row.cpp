#include <fmt/format.h>

#include "jit/specialisation.hpp"
#include "kiln/error.hpp"
#include "row.hpp"

namespace bench {

std::string compiled_row(std::string_view name) {
  try {
    return fmt::format(R"({},"compiler":"{}")", row(name), kiln::jit::compiler_identity());
  } catch (const kiln::Error&) {  // a file had the machine code
    return row(name);
  }
}

}  // namespace bench

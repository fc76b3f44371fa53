// What NVRTC makes of a specialisation: PTX as well as machine code, which jit::compile() gives alone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "jit/specialisation.hpp"

namespace bench {

struct Compiled {
  std::string ptx;               // as NVRTC gives it
  std::vector<std::byte> image;  // the cubin; empty where only PTX was asked for
};

enum class Wanted : bool { ptx, ptx_and_code };

/// Compiles with jit::byte_determining_options(). PTX alone, for the virtual architecture, is the same PTX and takes no assembler.
/// Thread-safe. Throws as jit::compile() does, without its advisories.
Compiled compile(const kiln::jit::Specialisation& specialisation, Wanted wanted);

}  // namespace bench

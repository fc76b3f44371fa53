// kiln-worker, apart from main(): the Python package has it in its library, which its programs share.
#pragma once

#include "kiln/export.h"

/// Compiles and times candidates for a process that uses Kiln, over a socket that is its standard input. Returns the
/// exit status.
extern "C" KILN_API int kiln_worker_main() noexcept;

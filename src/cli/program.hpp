// The command kiln, apart from main(): the Python package has it in its library, which its programs share.
#pragma once

#include "kiln/export.h"

/// Parses the global options and runs a command. Returns the exit status.
extern "C" KILN_API int kiln_command_main(int argc, char** argv);

// Where the running program and this library lie.
#pragma once

#include <filesystem>

namespace kiln::process {

/// The running program's file. Without /proc, as in some sandboxes, it is the full path by which the program was
/// started, as a search of PATH gives it; empty where it was started by a relative path.
std::filesystem::path running_program();
/// For tests: the same without /proc.
std::filesystem::path started_program();

/// The full path of the file that `address` is mapped from; empty where /proc does not say.
std::filesystem::path mapped_file(const void* address);

/// The shared library that holds Kiln, or the program that does.
std::filesystem::path file_of_this_library();

}  // namespace kiln::process

// What the system refuses for a while: threads, processes, file descriptors and mappings.
#pragma once

#include <string>

namespace kiln::manifest {

/// Returns the text of an errno. Where that means a shortage, also the limits that it may come from: "Too many open
/// files: ... RLIMIT_NOFILE (ulimit -n), which is 1024". EAGAIN is read as pthread_create(), fork() and posix_spawn()
/// give it.
std::string refusal_text(int error);

/// Whether an errno means a shortage of threads, processes, descriptors or memory, which may pass.
bool is_shortage(int error) noexcept;

/// Returns the errno with which the system refuses a new descriptor now, or 0.
int descriptor_shortage() noexcept;

}  // namespace kiln::manifest

// Threads that are left behind: in a call of the system that does not return, or to delete what owns them.
#pragma once

namespace kiln::manifest {

/// From now on dlclose() leaves this library loaded: a thread that was left behind returns into its code.
void keep_library_loaded() noexcept;

}  // namespace kiln::manifest

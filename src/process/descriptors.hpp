// Descriptors 0 to 2 stay those of the standard streams, whatever of them a process was started with.
#pragma once

namespace kiln::process {

/// Holds those of descriptors 0 to 2 that are closed, so that no file or socket opened later gets one and is written into as a
/// stream. Reading or writing one that is held fails with EBADF, as before. For the beginning of a program.
void hold_standard_descriptors() noexcept;

}  // namespace kiln::process

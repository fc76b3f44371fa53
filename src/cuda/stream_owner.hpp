// Whose a stream is: looked at where a launch failed and off the hit path, never on a hit.
#pragma once

#include <optional>
#include <string>

#include "cuda/device.hpp"

namespace kiln::cuda {

/// Why no work of `context` can go to `stream`: whose it is, or that the driver knows no such stream. Nothing for one of its own,
/// and for the default streams, which every context has.
std::optional<std::string> why_foreign(const Context& context, CUstream stream);

/// Throws Error(bad_input) for a stream of another device, or one that the driver does not know. Contexts of one device are not told
/// apart: a stream of a green context takes its device's work.
void require_own(const Context& context, CUstream stream);

/// The thread's own default stream: one handle for as many streams as there are threads (CU_STREAM_PER_THREAD).
inline bool is_per_thread(CUstream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) == 2; }
/// Null, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
inline bool is_default(CUstream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }

}  // namespace kiln::cuda

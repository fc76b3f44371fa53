// Which context a stream belongs to. Asked off the hit path and after a failed launch, never on a hit.
#pragma once

#include <optional>
#include <string>

#include "cuda/device.hpp"

namespace kiln::cuda {

/// Returns why `context` cannot launch on `stream`: it belongs to another context, or the driver does not know it.
/// Returns nothing for a stream of `context`, and for the default streams, which every context has.
std::optional<std::string> why_foreign(const Context& context, CUstream stream);

/// Throws Error(bad_input) for a stream of another device, or one that the driver does not know. A stream of another
/// context of the same device passes, because a stream of a green context takes its device's work.
void require_own(const Context& context, CUstream stream);

/// CU_STREAM_PER_THREAD: one handle, but a different stream in each thread.
inline bool is_per_thread(CUstream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) == 2; }
/// Null, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
inline bool is_default(CUstream stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream) <= 2; }

}  // namespace kiln::cuda

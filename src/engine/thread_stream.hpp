// Tells apart the threads' per-thread default streams, which share the handle CU_STREAM_PER_THREAD.
#pragma once

#include <cstdint>

namespace kiln::engine {

/// Returns a number for this thread's per-thread default stream: odd, as no stream's handle is. No other thread has it while work on the
/// stream may run. The work of an ended thread cannot be waited for, so its number is reused only if its stream was idle at its end.
std::uintptr_t thread_stream() noexcept;

/// Notes that this thread uses its stream in the current context. Call before anything there is made under its number.
void note_thread_stream() noexcept;

}  // namespace kiln::engine

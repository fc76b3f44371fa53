// The threads' own default streams have one handle for all of them (CU_STREAM_PER_THREAD): what tells them apart.
#pragma once

#include <cstdint>

namespace kiln::engine {

/// A number for this thread's per-thread default stream: odd, as no stream's handle is, and of no other thread while work of this one's
/// may run. A thread that ends leaves work behind, whose end nobody can ask for any more: its number goes to another thread only if its
/// stream was seen to be idle.
std::uintptr_t thread_stream() noexcept;

/// The thread is about to work on its stream in the current context. To be called before what goes by its number is made there.
void note_thread_stream() noexcept;

}  // namespace kiln::engine

// Which stream a handle is, and which context it belongs to. The latter is asked off the hit path and after a failed
// launch.
#pragma once

#include <cstdint>
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

/// Names a stream, or one stream's part of a capture.
struct StreamIdentity {
  std::uint64_t stream = 0;   // the driver's number, or the handle within a capture; 0: none
  std::uint64_t capture = 0;  // the capture's number plus 1; 0 outside captures

  [[nodiscard]] bool is_of_capture() const noexcept { return capture != 0; }
  friend bool operator==(const StreamIdentity&, const StreamIdentity&) = default;
};

/// Identifies the stream by two driver calls that end no capture (none for the legacy stream). The per-thread default
/// stream is the calling thread's, in the current context. Returns the driver's error, and
/// CUDA_ERROR_STREAM_CAPTURE_INVALIDATED for a capture that has ended so.
CUresult identify(CUstream stream, StreamIdentity& identity) noexcept;

}  // namespace kiln::cuda

// Tells streams apart for the life of the process, where a handle is given again after its stream was destroyed.
#pragma once

#include <cstdint>

#include "cuda/driver_api.hpp"

namespace kiln::cuda {

/// Names a stream, or one stream's part of a capture.
struct StreamIdentity {
  std::uint64_t stream = 0;   // the driver's number, or the handle within a capture; 0: none
  std::uint64_t capture = 0;  // the capture's number plus 1; 0 outside captures

  [[nodiscard]] bool is_of_capture() const noexcept { return capture != 0; }
  friend bool operator==(const StreamIdentity&, const StreamIdentity&) = default;
};

/// Identifies the stream by two driver calls that end no capture (none for the legacy stream). The per-thread default stream is the calling
/// thread's, in the current context. Returns the driver's error, and CUDA_ERROR_STREAM_CAPTURE_INVALIDATED for a capture that has ended so.
CUresult identify(CUstream stream, StreamIdentity& identity) noexcept;

}  // namespace kiln::cuda

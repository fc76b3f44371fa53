// Streams with a virtual clock each: work runs when it is enqueued, and moves the clock by what its cost model says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/driver_types.hpp"

struct CUctx_st;

namespace fake_cuda {

struct Machine;

/// One piece of work, run on a stream: now, or each time that the graph that captured it is launched.
using Work = std::function<void(Machine& machine, CUstream_st& stream)>;

struct Capture {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  CUstream origin = nullptr;
  bool invalidated = false;
  std::vector<Work> nodes;
};

}  // namespace fake_cuda

struct CUstream_st {
  CUstream_st(CUctx_st& of, bool waits_for_legacy) : context(&of), blocking(waits_for_legacy) {}

  CUctx_st* context;
  bool blocking;  // in order with the legacy stream
  double now_ns = 0;
  bool behind_kernel = false;  // what ran last is a kernel, whose end the next one may overlap
  struct Overwritten {
    CUdeviceptr at = 0;
    std::vector<std::int32_t> before;
  } overwritten;  // by the last kernel, if that was kiln::copy_late
  std::shared_ptr<fake_cuda::Capture> capture;
};

struct CUevent_st {
  CUevent_st(CUctx_st& of, bool takes_time) : context(&of), timing(takes_time) {}

  CUctx_st* context;
  bool timing;
  bool recorded = false;
  double at_ns = 0;
  std::weak_ptr<fake_cuda::Capture> capture;  // that it was last recorded in
};

namespace fake_cuda {

/// The stream of a handle, null being the legacy stream. Throws Failure(CUDA_ERROR_INVALID_HANDLE), also for another context's.
CUstream_st& resolve(Machine& machine, CUctx_st& context, CUstream stream);
/// Runs the work, or adds it to the capture that is under way on the stream.
void enqueue(Machine& machine, CUctx_st& context, CUstream stream, Work work);
/// The stream was busy for that long, after whatever it had to wait for.
void advance(Machine& machine, CUstream_st& stream, double ns);

/// The capture gives no graph.
void invalidate(Machine& machine, Capture& capture);
/// What calls that may load or allocate begin with: they end captures that forbid them, unless the thread said that it knows
/// (cuThreadExchangeStreamCaptureMode).
void forbid_while_capturing(Machine& machine);
/// What waiting for a stream, or for a whole context, begins with: no mode allows it.
void forbid_if_capturing(Machine& machine, CUstream_st& stream);
void forbid_while_any_captures(Machine& machine, const CUctx_st& context);
/// What uses the legacy stream, as every synchronous copy does: captures on streams in order with it end, in every mode.
void forbid_on_legacy_stream(Machine& machine, const CUctx_st& context);

}  // namespace fake_cuda

// Streams with a virtual clock each: work runs when it is enqueued, and moves the clock by what its cost model says.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/driver_types.hpp"

struct CUctx_st;
struct CUgraph_st;

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
  std::uint64_t number = next_number();
  CUgraph_st* graph = nullptr;  // that it becomes

  /// Of a capture, stream or thread: none has it again.
  static std::uint64_t next_number() noexcept {
    static std::uint64_t last = 6;
    return ++last;
  }
};

}  // namespace fake_cuda

struct CUstream_st {
  CUstream_st(CUctx_st& of, bool waits_for_legacy) : context(&of), blocking(waits_for_legacy) {}

  CUctx_st* context;
  std::uint64_t number = fake_cuda::Capture::next_number();
  std::deque<fake_cuda::Work> late;  // enqueued, and not run yet (the setting `late`)
  bool blocking;                     // in order with the legacy stream
  double now_ns = 0;
  std::uint32_t* awaited = nullptr;  // the word that the stream waits for last, and its value
  std::uint32_t awaited_value = 0;
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
/// Runs what streams have enqueued and not run, a piece of each in turns, as a device does that has room for all of them.
void run_late(Machine& machine);
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

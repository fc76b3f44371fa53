// Stream capture and the graphs that it makes. What a capture forbids, and what ends it, is as in "Stream Capture" of the CUDA
// C++ Programming Guide and cuThreadExchangeStreamCaptureMode of the driver's reference.
#include <algorithm>

#include "driver/entry.hpp"

using fake_cuda::Capture;
using fake_cuda::entry;
using fake_cuda::entry_in_context;
using fake_cuda::Machine;
using fake_cuda::require;
using fake_cuda::resolve;

namespace fake_cuda {

namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

}  // namespace

void invalidate(Machine& machine, Capture& capture) {
  machine.captures_broken += capture.invalidated ? 0 : 1;
  capture.invalidated = true;
}

void forbid_while_capturing(Machine& machine) {
  bool forbidden = false, own = false;
  for (const auto& capture : machine.captures) {
    const bool here = capture->thread == std::this_thread::get_id();
    own = own || here;
    const bool applies =
        (here && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
        (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!applies) continue;
    invalidate(machine, *capture);
    forbidden = true;
  }
  machine.unsafe_calls += own ? 1 : 0;
  require(!forbidden, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void forbid_if_capturing(Machine& machine, CUstream_st& stream) {
  if (!stream.capture) return;
  invalidate(machine, *stream.capture);
  throw Failure{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
}

void forbid_while_any_captures(Machine& machine, const CUctx_st& context) {
  machine.streams.for_each([&](CUstream_st& stream) {
    if (stream.context == &context) forbid_if_capturing(machine, stream);
  });
}

void forbid_on_legacy_stream(Machine& machine, const CUctx_st& context) {
  machine.streams.for_each([&](CUstream_st& other) {
    if (!other.capture || !other.blocking || other.context != &context) return;
    invalidate(machine, *other.capture);
    throw Failure{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT};
  });
}

}  // namespace fake_cuda

namespace {

CUstreamCaptureStatus status_of(Machine& machine, CUctx_st& context, CUstream handle) {
  if (handle == nullptr) {
    machine.streams.for_each([&](const CUstream_st& other) {
      require(!other.capture || !other.blocking || other.context != &context, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    });
  }
  const auto& capture = resolve(machine, context, handle).capture;
  if (!capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    require(handle != nullptr, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUstream_st& stream = resolve(machine, context, handle);
    require(!stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    stream.capture = std::make_shared<Capture>(Capture{mode, std::this_thread::get_id(), handle, false, {}});
    stream.capture->graph = machine.graphs.make();
    machine.captures.push_back(stream.capture);
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return entry(__func__, [&](Machine&) { std::swap(*mode, fake_cuda::thread_mode); });
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    *graph = nullptr;
    const std::shared_ptr<Capture> capture = resolve(machine, context, handle).capture;
    require(capture && capture->origin == handle, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    require(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == std::this_thread::get_id(),
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    std::erase(machine.captures, capture);
    machine.streams.for_each([&](CUstream_st& stream) {
      if (stream.capture == capture) stream.capture = nullptr;
    });
    resolve(machine, context, handle).capture = nullptr;  // a thread's own is not among those
    if (capture->invalidated) machine.graphs.destroy(capture->graph);
    require(!capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    *graph = capture->graph;
    (*graph)->nodes = std::move(capture->nodes);
  });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return entry_in_context(__func__,
                          [&](Machine& machine, CUctx_st& context) { *status = status_of(machine, context, stream); });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, std::uint64_t* id, CUgraph* graph,
                                   const CUgraphNode**, std::size_t*) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    *status = status_of(machine, context, stream);
    const auto& capture = resolve(machine, context, stream).capture;
    if (!capture) return;
    if (id != nullptr) *id = capture->number;
    if (graph != nullptr) *graph = capture->graph;
  });
}

CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned int references,
                            unsigned int flags) {
  return entry(__func__, [&](Machine&) {
    require(references == 1 && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CUDA_ERROR_INVALID_VALUE);
    *object = new CUuserObject_st(pointer, destroy);
  });
}

/// Takes the caller's reference, the only way that Kiln retains one.
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int references, unsigned int flags) {
  return entry(__func__, [&](Machine& machine) {
    require(references == 1 && flags == CU_GRAPH_USER_OBJECT_MOVE, CUDA_ERROR_INVALID_VALUE);
    machine.graphs[graph].retained.emplace_back(object);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return entry_in_context(
      __func__, [&](Machine& machine, CUctx_st&) { *executable = machine.executables.make(machine.graphs[graph]); });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    for (const fake_cuda::Work& node : machine.executables[executable].nodes) enqueue(machine, context, stream, node);
  });
}

/// Of a user object the driver lets go once the launches of its graphs have ended.
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    fake_cuda::run_late(machine);
    machine.executables.destroy(executable);
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) { machine.graphs.destroy(graph); });
}

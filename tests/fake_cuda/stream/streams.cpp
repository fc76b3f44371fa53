// Streams and events.
#include <algorithm>

#include "driver/entry.hpp"

using fake_cuda::Capture;
using fake_cuda::entry_in_context;
using fake_cuda::Machine;
using fake_cuda::require;
using fake_cuda::resolve;

namespace fake_cuda {

constexpr std::uintptr_t per_thread_handle = 2;

static std::uint64_t thread_number() noexcept {
  thread_local const std::uint64_t number = Capture::next_number();
  return number;
}

CUstream_st& resolve(Machine& machine, CUctx_st& context, CUstream stream) {
  if (stream == nullptr) return *context.legacy_stream;
  if (reinterpret_cast<std::uintptr_t>(stream) == per_thread_handle)
    return context.per_thread_streams.try_emplace(thread_number(), context, true).first->second;
  CUstream_st& found = machine.streams[stream];
  require(found.context == &context, CUDA_ERROR_INVALID_HANDLE);
  return found;
}

void enqueue(Machine& machine, CUctx_st& context, CUstream handle, Work work) {
  CUstream_st& stream = resolve(machine, context, handle);
  if (handle == nullptr) forbid_on_legacy_stream(machine, context);
  if (!stream.capture) {
    if (machine.settings.late != 0)
      stream.late.push_back(std::move(work));
    else
      work(machine, stream);
    return;
  }
  require(!stream.capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  stream.capture->nodes.push_back(std::move(work));
}

void run_late(Machine& machine) {
  for (bool any = true; any;) {
    any = false;
    const auto run_one = [&](CUstream_st& stream) {
      if (stream.late.empty()) return;
      const Work work = std::move(stream.late.front());
      stream.late.pop_front();
      work(machine, stream);
      any = true;
    };
    for (const auto& ended : machine.ended_streams) run_one(*ended);
    machine.streams.for_each(run_one);
    for (const auto& [device, context] : machine.contexts) {
      run_one(*context->legacy_stream);
      for (auto& [thread, stream] : context->per_thread_streams) run_one(stream);
    }
  }
  machine.ended_streams.clear();
}

void advance(Machine& machine, CUstream_st& stream, double ns) {
  CUstream_st& legacy = *stream.context->legacy_stream;
  if (&stream == &legacy) {
    machine.streams.for_each([&](const CUstream_st& other) {
      if (other.blocking && other.context == stream.context) legacy.now_ns = std::max(legacy.now_ns, other.now_ns);
    });
  } else if (stream.blocking) {
    stream.now_ns = std::max(stream.now_ns, legacy.now_ns);
  }
  stream.now_ns += ns;
  stream.behind_kernel = false;
}

}  // namespace fake_cuda

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    require((flags & ~CU_STREAM_NON_BLOCKING) == 0, CUDA_ERROR_INVALID_VALUE);
    *stream = machine.begin_stream(context, flags == CU_STREAM_DEFAULT);
  });
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    require(!machine.streams[stream].capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    machine.end_stream(stream);
  });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    if (stream == nullptr) fake_cuda::forbid_on_legacy_stream(machine, context);
    fake_cuda::forbid_if_capturing(machine, resolve(machine, context, stream));
    fake_cuda::run_late(machine);
  });
}

/// Work runs when it is enqueued: a stream is busy only where a test says so (`fail`).
CUresult cuStreamQuery(CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    fake_cuda::forbid_if_capturing(machine, resolve(machine, context, stream));
  });
}

/// Asking for the number of a stream that captures ends the capture, as it does on an H200 (driver 580); so does asking for the legacy
/// stream's beside a capture in order with it.
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    if (stream == nullptr) fake_cuda::forbid_on_legacy_stream(machine, context);
    CUstream_st& found = resolve(machine, context, stream);
    fake_cuda::forbid_if_capturing(machine, found);
    *id = found.number;
  });
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& current) {
    *context = stream == nullptr ? &current : machine.streams[stream].context;
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    fake_cuda::run_late(machine);
    CUstream_st& stream = resolve(machine, context, handle);
    const CUevent_st& awaited = machine.events[event];
    if (const auto capture = awaited.capture.lock()) {
      require(handle != nullptr && (!stream.capture || stream.capture == capture),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      stream.capture = capture;  // joins it
    } else if (awaited.recorded) {
      stream.now_ns = std::max(stream.now_ns, awaited.at_ns);
    }
  });
}

/// Work runs when it is enqueued, so a stream never has anything to wait for, unless launches block; no time of the host's enters either.
CUresult cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr address, std::uint32_t value, unsigned int) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    CUstream_st& stream = resolve(machine, context, handle);
    fake_cuda::forbid_if_capturing(machine, stream);
    stream.awaited = reinterpret_cast<std::uint32_t*>(address);
    stream.awaited_value = value;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    *event = machine.events.make(context, (flags & CU_EVENT_DISABLE_TIMING) == 0);
  });
}

CUresult cuEventDestroy_v2(CUevent event) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) { machine.events.destroy(event); });
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    CUevent_st& event = machine.events[handle];
    const CUstream_st& on = resolve(machine, context, stream);
    event.capture = on.capture;
    if (on.capture) return;
    enqueue(machine, context, stream, [&event](Machine& of, CUstream_st& run) {
      advance(of, run, 0);
      event.recorded = true;
      event.at_ns = run.now_ns;
    });
  });
}

namespace {

void require_outside_capture(Machine& machine, const CUevent_st& event) {
  const auto capture = event.capture.lock();
  if (!capture) return;
  fake_cuda::invalidate(machine, *capture);
  throw fake_cuda::Failure{CUDA_ERROR_CAPTURED_EVENT};
}

}  // namespace

CUresult cuEventSynchronize(CUevent event) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    require_outside_capture(machine, machine.events[event]);
    fake_cuda::run_late(machine);
  });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent begin, CUevent end) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    fake_cuda::run_late(machine);
    const CUevent_st& from = machine.events[begin];
    const CUevent_st& to = machine.events[end];
    require(from.recorded && to.recorded && from.timing && to.timing, CUDA_ERROR_INVALID_HANDLE);
    *milliseconds = machine.faults.on_time(static_cast<float>((to.at_ns - from.at_ns) * 1e-6));
  });
}

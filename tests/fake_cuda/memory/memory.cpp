// cuMem*: allocation, copies, fills.
#include <cstring>
#include <memory>
#include <utility>

#include "driver/entry.hpp"

using fake_cuda::enqueue;
using fake_cuda::entry;
using fake_cuda::entry_in_context;
using fake_cuda::forbid_on_legacy_stream;
using fake_cuda::forbid_while_capturing;
using fake_cuda::Machine;
using fake_cuda::require;
using fake_cuda::run_late;

namespace {

std::int64_t as_signed(std::size_t bytes) {
  require(bytes <= static_cast<std::size_t>(INT64_MAX), CUDA_ERROR_INVALID_VALUE);
  return static_cast<std::int64_t>(bytes);
}

double copy_ns(std::size_t bytes, double bytes_per_ns) {
  return fake_cuda::launch_ns + static_cast<double>(bytes) / bytes_per_ns;
}

constexpr double host_bytes_per_ns = 50;

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    forbid_while_capturing(machine);
    *pointer = machine.heap.allocate(as_signed(bytes), context.device,
                                     machine.settings.memory - machine.virtual_memory.bytes_on(context.device));
  });
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    if (pointer == 0) return;
    forbid_while_capturing(machine);
    run_late(machine);  // it waits for the device
    machine.heap.release(pointer);
  });
}

CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    *total_bytes = static_cast<std::size_t>(machine.settings.memory);
    const std::int64_t left = machine.settings.memory - machine.heap.bytes_on(context.device) -
                              machine.virtual_memory.bytes_on(context.device);
    *free_bytes = static_cast<std::size_t>(left > 0 ? left : 0);
  });
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, std::size_t bytes) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    forbid_on_legacy_stream(machine, context);
    forbid_while_capturing(machine);
    run_late(machine);
    std::memcpy(machine.heap.at(destination, as_signed(bytes)), source, bytes);
  });
}

CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, std::size_t bytes) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    forbid_on_legacy_stream(machine, context);
    forbid_while_capturing(machine);
    run_late(machine);
    std::memcpy(destination, machine.heap.at(source, as_signed(bytes)), bytes);
  });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    enqueue(machine, context, stream, [=](Machine& on, CUstream_st& run) {
      std::memmove(on.heap.at(destination, as_signed(bytes)), on.heap.at(source, as_signed(bytes)), bytes);
      advance(on, run, copy_ns(bytes, fake_cuda::memory_bytes_per_ns / 2));
    });
  });
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void* source, std::size_t bytes, CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    enqueue(machine, context, stream, [=](Machine& on, CUstream_st& run) {
      std::memcpy(on.heap.at(destination, as_signed(bytes)), source, bytes);
      advance(on, run, copy_ns(bytes, host_bytes_per_ns));
    });
  });
}

CUresult cuMemcpyDtoHAsync_v2(void* destination, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    enqueue(machine, context, stream, [=](Machine& on, CUstream_st& run) {
      std::memcpy(destination, on.heap.at(source, as_signed(bytes)), bytes);
      advance(on, run, copy_ns(bytes, host_bytes_per_ns));
    });
  });
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, std::size_t count, CUstream stream) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st& context) {
    enqueue(machine, context, stream, [=](Machine& on, CUstream_st& run) {
      on.heap.fill(pointer, value, as_signed(count));
      advance(on, run, copy_ns(count, fake_cuda::memory_bytes_per_ns));
    });
  });
}

CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned int) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    forbid_while_capturing(machine);
    auto memory = std::make_unique<std::byte[]>(bytes);
    *pointer = memory.get();
    machine.host_memory.emplace(*pointer, std::move(memory));
  });
}

CUresult cuMemFreeHost(void* pointer) {
  return entry_in_context(__func__, [&](Machine& machine, CUctx_st&) {
    forbid_while_capturing(machine);
    require(machine.host_memory.erase(pointer) == 1, CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return entry(__func__, [&](Machine& machine) {
    const fake_cuda::Heap::Block* block = machine.heap.find(pointer, 1);
    require(block != nullptr, CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<CUcontext*>(value) = machine.contexts.at(block->device).get();
        return;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *static_cast<unsigned*>(value) = 2; return;  // CU_MEMORYTYPE_DEVICE
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(value) = 0; return;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(value) = block->device; return;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr*>(value) = block->begin; return;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(value) = static_cast<std::size_t>(block->bytes);
        return;
    }
    throw fake_cuda::Failure{CUDA_ERROR_INVALID_VALUE};
  });
}

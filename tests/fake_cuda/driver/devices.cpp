// Devices and their primary contexts.
#include <algorithm>
#include <cstring>
#include <string>

#include "driver/entry.hpp"

using fake_cuda::entry;
using fake_cuda::entry_in_context;
using fake_cuda::Failure;
using fake_cuda::Machine;
using fake_cuda::require;

namespace {

std::int64_t attribute_value(const fake_cuda::Settings& device, CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return fake_cuda::shared_per_block_default;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: return fake_cuda::registers_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1980000;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return device.multiprocessors;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED: return 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return device.mode;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED: return 0;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: return 1;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 3201000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return device.bus;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return device.l2;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return fake_cuda::threads_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return device.sm / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return device.sm % 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return fake_cuda::shared_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return fake_cuda::registers_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: return 1;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return fake_cuda::shared_per_block_optin;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return fake_cuda::blocks_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return fake_cuda::shared_reserved_per_block;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: return device.sm >= 90 ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: return 0;
  }
  throw Failure{CUDA_ERROR_INVALID_VALUE};
}

}  // namespace

CUresult cuInit(unsigned int flags) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  if (const auto failed = machine.faults.on_call("cuInit")) return *failed;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (machine.settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  machine.initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  *version = static_cast<int>(machine.settings.driver);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  return entry(__func__, [&](Machine& machine) { *count = static_cast<int>(machine.settings.devices); });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return entry(__func__, [&](Machine& machine) {
    machine.require_device(ordinal);
    *device = ordinal;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return entry(__func__, [&](Machine& machine) {
    machine.require_device(device);
    require(length > 0, CUDA_ERROR_INVALID_VALUE);
    const std::string text = "Fake H200 (sm_" + std::to_string(machine.settings.sm) + ")";
    const std::size_t kept = std::min(text.size(), static_cast<std::size_t>(length) - 1);
    std::memcpy(name, text.data(), kept);
    name[kept] = '\0';
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return entry(__func__, [&](Machine& machine) {
    machine.require_device(device);
    *uuid = {};
    uuid->bytes[0] = static_cast<char>(machine.settings.hidden + device);
  });
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  return entry(__func__, [&](Machine& machine) {
    machine.require_device(device);
    *bytes = static_cast<std::size_t>(machine.settings.memory);
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return entry(__func__, [&](Machine& machine) {
    machine.require_device(device);
    *value = static_cast<int>(attribute_value(machine.settings, attribute));
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return entry(__func__, [&](Machine& machine) {
    require(machine.may_use_devices(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    *context = machine.retain(device);
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return entry(__func__, [&](Machine& machine) { machine.release(device); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return entry(__func__, [&](Machine& machine) {
    machine.require_device(device);
    if (machine.contexts.contains(device)) machine.empty(device);
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return entry(__func__, [&](Machine& machine) {
    const bool lives = std::any_of(machine.contexts.begin(), machine.contexts.end(),
                                   [&](const auto& each) { return each.second.get() == context; });
    require(lives, CUDA_ERROR_INVALID_CONTEXT);
    fake_cuda::context_stack().push_back(context);
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return entry(__func__, [&](Machine&) {
    auto& stack = fake_cuda::context_stack();
    require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return entry(__func__, [&](Machine&) {
    const auto& stack = fake_cuda::context_stack();
    *context = stack.empty() ? nullptr : stack.back();
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return entry(__func__, [&](Machine&) {
    const auto& stack = fake_cuda::context_stack();
    require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    *device = stack.back()->device;
  });
}

CUresult cuCtxSynchronize() {
  return entry_in_context(__func__, [](Machine& machine, CUctx_st& context) {
    fake_cuda::forbid_while_any_captures(machine, context);
    fake_cuda::forbid_while_capturing(machine);
    fake_cuda::run_late(machine);
  });
}

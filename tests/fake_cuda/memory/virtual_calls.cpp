// The calls of virtual memory: memory apart from addresses, shared by file descriptors.
#include "driver/entry.hpp"

using fake_cuda::entry;
using fake_cuda::Machine;
using fake_cuda::require;

namespace {

std::int64_t whole(std::size_t bytes) {
  require(bytes <= static_cast<std::size_t>(INT64_MAX), CUDA_ERROR_INVALID_VALUE);
  return static_cast<std::int64_t>(bytes);
}

void require_on_device(const Machine& machine, const CUmemLocation& location) {
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
  machine.require_device(location.id);
}

void require_known(const Machine& machine, const CUmemAllocationProp& properties) {
  require(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED && properties.win32HandleMetaData == nullptr,
          CUDA_ERROR_INVALID_VALUE);
  require(properties.requestedHandleTypes <= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
  require_on_device(machine, properties.location);
}

}  // namespace

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return entry(__func__, [&](Machine& machine) {
    machine.require_device(device);
    machine.require_device(peer);
    *can = device != peer ? 1 : 0;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice destination) {
  return entry(__func__, [&](Machine& machine) {
    machine.require_device(source);
    machine.require_device(destination);
    require(source != destination, CUDA_ERROR_INVALID_DEVICE);
    const bool has_atomics = machine.settings.pcie == 0;
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
             (attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED && has_atomics);
  });
}

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return entry(__func__, [&](Machine& machine) {
    require_known(machine, *properties);
    *bytes = static_cast<std::size_t>(machine.settings.granularity);
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return entry(__func__, [&](Machine& machine) {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    require_known(machine, *properties);
    require(whole(bytes) % machine.settings.granularity == 0, CUDA_ERROR_INVALID_VALUE);
    const CUdevice device = properties->location.id;
    *handle = machine.virtual_memory.create(
        whole(bytes), device, properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        machine.settings.memory - machine.heap.bytes_on(device));
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return entry(__func__, [&](Machine& machine) { machine.virtual_memory.release(handle); });
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  return entry(__func__, [&](Machine& machine) {
    require(flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_INVALID_VALUE);
    *static_cast<int*>(shareable) = machine.virtual_memory.export_descriptor(handle);
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  return entry(__func__, [&](Machine& machine) {
    require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_INVALID_VALUE);
    *handle = machine.virtual_memory.import_descriptor(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return entry(__func__, [&](Machine& machine) {
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    *pointer = machine.virtual_memory.reserve(whole(bytes), whole(alignment));
  });
}

CUresult cuMemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
  return entry(__func__, [&](Machine& machine) { machine.virtual_memory.free(pointer, whole(bytes)); });
}

CUresult cuMemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return entry(__func__, [&](Machine& machine) {
    require(flags == 0 && offset == 0, CUDA_ERROR_INVALID_VALUE);
    machine.virtual_memory.map(pointer, whole(bytes), handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr pointer, std::size_t bytes) {
  return entry(__func__, [&](Machine& machine) {
    machine.virtual_memory.unmap(pointer, whole(bytes));
    machine.heap.forget(pointer);
  });
}

CUresult cuMemSetAccess(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
  return entry(__func__, [&](Machine& machine) {
    require(count > 0, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < count; ++i) {
      require_on_device(machine, access[i].location);
      require(access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_NOT_SUPPORTED);
    }
    const CUdevice device = machine.virtual_memory.allow(pointer, whole(bytes));
    machine.heap.show(pointer, whole(bytes), device);
  });
}

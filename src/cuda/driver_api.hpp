// The CUDA driver as a table of functions, opened at first use: a build host needs no GPU and no libcuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/driver_types.hpp"

// X(presence, symbol, parameters). `symbol` is the exported name with its version suffix, which no macro of cuda.h
// renames. Each function returns CUresult. An `optional` one is null where the driver lacks it. cuEventElapsedTime_v2
// points to the unversioned function in drivers that export only that.
#define KILN_CUDA_DRIVER_FUNCTIONS(X)                                                                                  \
  X(required, cuInit, (unsigned int flags))                                                                            \
  X(required, cuDriverGetVersion, (int* version))                                                                      \
  X(required, cuGetErrorName, (CUresult result, const char** name))                                                    \
  X(required, cuGetErrorString, (CUresult result, const char** description))                                           \
  X(required, cuDeviceGetCount, (int* count))                                                                          \
  X(required, cuDeviceGet, (CUdevice * device, int ordinal))                                                           \
  X(required, cuDeviceGetName, (char* name, int length, CUdevice device))                                              \
  X(required, cuDeviceTotalMem_v2, (std::size_t * bytes, CUdevice device))                                             \
  X(required, cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))                       \
  X(required, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                        \
  X(required, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                         \
  X(required, cuCtxPushCurrent_v2, (CUcontext context))                                                                \
  X(required, cuCtxPopCurrent_v2, (CUcontext * context))                                                               \
  X(required, cuCtxGetCurrent, (CUcontext * context))                                                                  \
  X(optional, cuCtxGetDevice, (CUdevice * device))                                                                     \
  X(required, cuCtxSynchronize, ())                                                                                    \
  X(required, cuStreamCreate, (CUstream * stream, unsigned int flags))                                                 \
  X(required, cuStreamDestroy_v2, (CUstream stream))                                                                   \
  X(required, cuStreamSynchronize, (CUstream stream))                                                                  \
  X(required, cuStreamQuery, (CUstream stream))                                                                        \
  X(required, cuStreamGetCtx, (CUstream stream, CUcontext * context))                                                  \
  X(required, cuStreamGetId, (CUstream stream, unsigned long long* id))                                                \
  X(required, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))                                  \
  X(required, cuStreamGetCaptureInfo_v2,                                                                               \
    (CUstream stream, CUstreamCaptureStatus * status, std::uint64_t * id, CUgraph * graph,                             \
     const CUgraphNode** dependencies, std::size_t* dependency_count))                                                 \
  X(required, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                                 \
  X(optional, cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr address, std::uint32_t value, unsigned int flags)) \
  X(required, cuEventCreate, (CUevent * event, unsigned int flags))                                                    \
  X(required, cuEventRecord, (CUevent event, CUstream stream))                                                         \
  X(required, cuEventSynchronize, (CUevent event))                                                                     \
  X(required, cuEventElapsedTime_v2, (float* milliseconds, CUevent begin, CUevent end))                                \
  X(required, cuEventDestroy_v2, (CUevent event))                                                                      \
  X(required, cuMemAlloc_v2, (CUdeviceptr * pointer, std::size_t bytes))                                               \
  X(required, cuMemFree_v2, (CUdeviceptr pointer))                                                                     \
  X(required, cuMemGetInfo_v2, (std::size_t * free_bytes, std::size_t * total_bytes))                                  \
  X(required, cuMemcpyHtoD_v2, (CUdeviceptr destination, const void* source, std::size_t bytes))                       \
  X(required, cuMemcpyDtoH_v2, (void* destination, CUdeviceptr source, std::size_t bytes))                             \
  X(required, cuMemcpyDtoDAsync_v2, (CUdeviceptr destination, CUdeviceptr source, std::size_t bytes, CUstream stream)) \
  X(required, cuMemcpyHtoDAsync_v2, (CUdeviceptr destination, const void* source, std::size_t bytes, CUstream stream)) \
  X(required, cuMemcpyDtoHAsync_v2, (void* destination, CUdeviceptr source, std::size_t bytes, CUstream stream))       \
  X(required, cuMemsetD8Async, (CUdeviceptr pointer, unsigned char value, std::size_t count, CUstream stream))         \
  X(optional, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                                    \
  X(optional, cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                                       \
  X(optional, cuDeviceGetP2PAttribute,                                                                                 \
    (int* value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice destination))                              \
  X(optional, cuMemGetAllocationGranularity,                                                                           \
    (std::size_t * bytes, const CUmemAllocationProp* properties, CUmemAllocationGranularity_flags flags))              \
  X(optional, cuMemCreate,                                                                                             \
    (CUmemGenericAllocationHandle * handle, std::size_t bytes, const CUmemAllocationProp* properties,                  \
     unsigned long long flags))                                                                                        \
  X(optional, cuMemRelease, (CUmemGenericAllocationHandle handle))                                                     \
  X(optional, cuMemExportToShareableHandle,                                                                            \
    (void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags))  \
  X(optional, cuMemImportFromShareableHandle,                                                                          \
    (CUmemGenericAllocationHandle * handle, void* shareable, CUmemAllocationHandleType type))                          \
  X(optional, cuMemAddressReserve,                                                                                     \
    (CUdeviceptr * pointer, std::size_t bytes, std::size_t alignment, CUdeviceptr wanted, unsigned long long flags))   \
  X(optional, cuMemAddressFree, (CUdeviceptr pointer, std::size_t bytes))                                              \
  X(optional, cuMemMap,                                                                                                \
    (CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,                  \
     unsigned long long flags))                                                                                        \
  X(optional, cuMemUnmap, (CUdeviceptr pointer, std::size_t bytes))                                                    \
  X(optional, cuMemSetAccess,                                                                                          \
    (CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count))                        \
  X(required, cuMemHostAlloc, (void** pointer, std::size_t bytes, unsigned int flags))                                 \
  X(required, cuMemFreeHost, (void* pointer))                                                                          \
  X(required, cuModuleLoadDataEx,                                                                                      \
    (CUmodule * module, const void* image, unsigned int option_count, CUjit_option* options, void** values))           \
  X(required, cuModuleUnload, (CUmodule module))                                                                       \
  X(required, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))                         \
  X(required, cuFuncGetAttribute, (int* value, CUfunction_attribute attribute, CUfunction function))                   \
  X(required, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))                    \
  X(optional, cuFuncLoad, (CUfunction function))                                                                       \
  X(required, cuLaunchKernelEx, (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra))  \
  X(required, cuLaunchKernel,                                                                                          \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,         \
     unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void** parameters,        \
     void** extra))                                                                                                    \
  X(required, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                             \
    (int* blocks, CUfunction function, int block_size, std::size_t shared_bytes))                                      \
  X(optional, cuTensorMapEncodeTiled,                                                                                  \
    (CUtensorMap * map, CUtensorMapDataType type, unsigned int rank, void* address, const std::uint64_t* shape,        \
     const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* element_strides,                     \
     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,                   \
     CUtensorMapFloatOOBfill fill))                                                                                    \
  X(required, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                                    \
  X(optional, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))                                         \
  X(required, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                  \
  X(required, cuGraphInstantiateWithFlags, (CUgraphExec * executable, CUgraph graph, unsigned long long flags))        \
  X(required, cuGraphLaunch, (CUgraphExec executable, CUstream stream))                                                \
  X(required, cuUserObjectCreate,                                                                                      \
    (CUuserObject * object, void* pointer, CUhostFn destroy, unsigned int references, unsigned int flags))             \
  X(required, cuGraphRetainUserObject,                                                                                 \
    (CUgraph graph, CUuserObject object, unsigned int references, unsigned int flags))                                 \
  X(required, cuGraphExecDestroy, (CUgraphExec executable))                                                            \
  X(required, cuGraphDestroy, (CUgraph graph))                                                                         \
  X(required, cuPointerGetAttribute, (void* value, CUpointer_attribute attribute, CUdeviceptr pointer))

namespace kiln::cuda {

/// Call as `Driver::get().cuMemAlloc_v2(&pointer, bytes)`. Immutable once opened, so thread-safe.
struct Driver {
#define KILN_DECLARE(presence, symbol, parameters) CUresult(*symbol) parameters = nullptr;
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE

  /// Opens $KILN_CUDA_LIBRARY (a path; "none" hides the driver), else libcuda.so.1, and initialises it, once a process.
  /// Throws Error(no_driver) naming what was tried and what to install, and Error(no_device) when the driver finds no
  /// GPU.
  static const Driver& get();
  /// Returns get(), or null where get() throws.
  static const Driver* find() noexcept;
  /// Opens and initialises `library` ("none" hides the driver; empty: libcuda.so.1) on each call. Throws as get() does.
  static Driver open(const std::string& library);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }  // of the library as loaded

 private:
  std::string path_;
};

}  // namespace kiln::cuda

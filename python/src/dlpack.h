// What Kiln reads of DLPack 1.x (github.com/dmlc/dlpack): tensors, and the table of C functions by which a tensor's type exchanges them.
#ifndef KILN_PYTHON_DLPACK_H
#define KILN_PYTHON_DLPACK_H

#include <stdint.h>  // NOLINT(modernize-deprecated-headers)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint32_t major, minor;
} DLPackVersion;

enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };
typedef struct {
  int32_t device_type, device_id;
} DLDevice;

enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLFloat8_e4m3fn = 10, kDLFloat8_e5m2 = 12 };
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides;  // in elements; null strides: dense
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

#define DLPACK_FLAG_BITMASK_READ_ONLY 1U
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

// Of the functions Kiln calls two or three. All return 0, or -1 with a Python exception set.
typedef struct DLPackExchangeAPI {
  DLPackVersion version;
  struct DLPackExchangeAPI* previous;  // of an older major version; may be null
  void (*managed_tensor_allocator)(void);
  int (*managed_tensor_from_py_object_no_sync)(void* object, DLManagedTensorVersioned** out);
  void (*managed_tensor_to_py_object_no_sync)(void);
  int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out);  // may be null
  int (*current_work_stream)(int32_t device_type, int32_t device, void** stream);
} DLPackExchangeAPI;

#ifdef __cplusplus
}
#endif
#endif

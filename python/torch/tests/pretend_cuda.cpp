// Loaded before torch, it has kiln.torch take tensors of the host for those of a CUDA device, whose memory and streams are those of
// tests/fake_cuda. So the whole way from torch.ops.kiln to a launch runs where no GPU is.
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

using Handle = void*;
constexpr std::int32_t cuda = 1;  // of c10::DeviceType

template <class Function>
Function* of(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}
void* torch() {
  static void* const opened = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return opened;
}
void* driver() {
  static void* const opened = dlopen(std::getenv("KILN_CUDA_LIBRARY"), RTLD_LAZY);
  return opened;
}

std::uint64_t allocate(std::size_t bytes) {
  std::uint64_t address = 0;
  of<int(std::uint64_t*, std::size_t)>(driver(), "cuMemAlloc_v2")(&address, bytes == 0 ? 1 : bytes);
  return address;
}
/// Of a tensor, for which torch's cache has room: no other thread's capture is disturbed.
std::uint64_t allocate_cached(std::size_t bytes) {
  int mode = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
  auto* const exchange = of<int(int*)>(driver(), "cuThreadExchangeStreamCaptureMode");
  exchange(&mode);
  const std::uint64_t address = allocate(bytes);
  exchange(&mode);
  return address;
}
int release(std::uint64_t address) { return of<int(std::uint64_t)>(driver(), "cuMemFree_v2")(address); }

}  // namespace

extern "C" {
std::int32_t aoti_torch_get_device_type(Handle, std::int32_t* type) {
  *type = cuda;
  return 0;
}
std::int32_t aoti_torch_get_device_index(Handle, std::int32_t* index) {
  *index = 0;
  return 0;
}
std::int32_t aoti_torch_empty_strided(std::int64_t rank, const std::int64_t* sizes, const std::int64_t* strides,
                                      std::int32_t dtype, std::int32_t type, std::int32_t index, Handle* made) {
  if (type != cuda)
    return of<decltype(aoti_torch_empty_strided)>(torch(), "aoti_torch_empty_strided")(rank, sizes, strides, dtype,
                                                                                       type, index, made);
  std::size_t bytes = of<std::size_t(std::int32_t)>(torch(), "aoti_torch_dtype_element_size")(dtype);
  for (std::int64_t i = 0; i < rank; ++i) bytes *= static_cast<std::size_t>(sizes[i]);
  using FromBlob = std::int32_t(void*, std::int64_t, const std::int64_t*, const std::int64_t*, std::int64_t,
                                std::int32_t, std::int32_t, std::int32_t, Handle*, std::int32_t, const std::uint8_t*,
                                std::int64_t, void (*)(void*, void*), void*);
  return of<FromBlob>(torch(), "torch_from_blob")(
      reinterpret_cast<void*>(allocate_cached(bytes)), rank, sizes, strides, 0, dtype, 0, -1, made, 0, nullptr, 0,
      [](void* data, void*) { release(reinterpret_cast<std::uint64_t>(data)); }, nullptr);
}
std::int32_t aoti_torch_get_current_cuda_stream(std::int32_t, void** stream) {
  static void* const made = [] {
    void* created = nullptr;
    of<int(void**, unsigned)>(driver(), "cuStreamCreate")(&created, 1);
    return created;
  }();
  *stream = made;
  return 0;
}
/// The device's context is that of the calling thread too, as torch has it.
std::int32_t aoti_torch_create_cuda_stream_guard(void*, std::int32_t device, void**) {
  void* context = nullptr;
  of<int(void**, int)>(driver(), "cuDevicePrimaryCtxRetain")(&context, device);
  return of<int(void*)>(driver(), "cuCtxPushCurrent_v2")(context);
}
std::int32_t aoti_torch_delete_cuda_stream_guard(void*) {
  void* context = nullptr;
  return of<int(void**)>(driver(), "cuCtxPopCurrent_v2")(&context);
}
/// Copies of inputs lie in the device's memory too.
std::int32_t torch_call_dispatcher(const char* name, const char* overload, std::uint64_t* stack,
                                   std::uint64_t version) {
  const auto result =
      of<decltype(torch_call_dispatcher)>(torch(), "torch_call_dispatcher")(name, overload, stack, version);
  auto* const copied = reinterpret_cast<Handle>(stack[0]);
  Handle made = nullptr;
  std::int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
  std::int32_t dtype = 0;
  of<std::int32_t(Handle, std::int64_t*)>(torch(), "aoti_torch_get_dim")(copied, &rank);
  of<std::int32_t(Handle, std::int64_t**)>(torch(), "aoti_torch_get_sizes")(copied, &sizes);
  of<std::int32_t(Handle, std::int64_t**)>(torch(), "aoti_torch_get_strides")(copied, &strides);
  of<std::int32_t(Handle, std::int32_t*)>(torch(), "aoti_torch_get_dtype")(copied, &dtype);
  aoti_torch_empty_strided(rank, sizes, strides, dtype, cuda, 0, &made);
  of<std::int32_t(Handle, Handle, std::int32_t)>(torch(), "aoti_torch_copy_")(made, copied, 0);
  of<std::int32_t(Handle)>(torch(), "aoti_torch_delete_tensor_object")(copied);
  stack[0] = reinterpret_cast<std::uint64_t>(made);
  return result;
}

int workspaces = 0, of_main_thread = 0;
int pretend_workspaces() { return workspaces; }
int pretend_workspaces_of_main_thread() { return of_main_thread; }
std::int32_t aoti_torch_cuda_caching_allocator_raw_alloc(std::uint64_t bytes, void** address) {
  ++workspaces;
  of_main_thread += gettid() == getpid();
  *address = reinterpret_cast<void*>(allocate(bytes));
  return 0;
}
std::int32_t aoti_torch_cuda_caching_allocator_raw_delete(void* address) {
  return release(reinterpret_cast<std::uint64_t>(address));
}

/// Waits for all that was launched.
void pretend_synchronise() {
  void* stream = nullptr;
  aoti_torch_get_current_cuda_stream(0, &stream);
  of<int(void*)>(driver(), "cuStreamSynchronize")(stream);
}
}

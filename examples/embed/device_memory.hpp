// Device memory for the example, through libcuda alone.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

template <class Function>
Function cuda_function(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error("libcuda.so.1 is not here");
  return reinterpret_cast<Function>(dlsym(library, name));
}

/// Makes a device's primary context current on this thread, as the CUDA runtime does at its first call.
inline void use_device(int device = 0) {
  void* context = nullptr;
  if (cuda_function<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device) != 0 ||
      cuda_function<int (*)(void*)>("cuCtxSetCurrent")(context) != 0)
    throw std::runtime_error("the device has no context");
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t count) : count_(count) {
    if (cuda_function<int (*)(unsigned long long*, std::size_t)>("cuMemAlloc_v2")(&pointer_, count * sizeof(float)) !=
        0)
      throw std::runtime_error("no device memory");
  }
  explicit DeviceMemory(const std::vector<float>& values) : DeviceMemory(values.size()) {
    cuda_function<int (*)(unsigned long long, const void*, std::size_t)>("cuMemcpyHtoD_v2")(pointer_, values.data(),
                                                                                            count_ * sizeof(float));
  }
  ~DeviceMemory() { cuda_function<int (*)(unsigned long long)>("cuMemFree_v2")(pointer_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] const void* address() const { return reinterpret_cast<const void*>(pointer_); }
  [[nodiscard]] std::vector<float> read() const {
    std::vector<float> values(count_);
    cuda_function<int (*)(void*, unsigned long long, std::size_t)>("cuMemcpyDtoH_v2")(values.data(), pointer_,
                                                                                      count_ * sizeof(float));
    return values;
  }

 private:
  unsigned long long pointer_ = 0;
  std::size_t count_;
};

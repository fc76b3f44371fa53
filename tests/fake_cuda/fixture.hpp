// The fake driver as a test holds it: through Kiln's own table, with the driver's extra door beside it.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "cuda/driver_api.hpp"
#include "fake_cuda/driver/control.hpp"
#include "jit/specialisation.hpp"

namespace fake_cuda_tests {

inline const kiln::cuda::Driver& driver() { return kiln::cuda::Driver::get(); }

template <typename Function>
Function extra(const char* name) {
  void* library = dlopen(std::getenv("KILN_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function>(dlsym(library, name));
}
inline void control(const std::string& command) {
  REQUIRE(extra<FakeCudaControl>("fake_cuda_control")(command.c_str()) == 0);
}
inline std::int64_t query(const char* question) { return extra<FakeCudaQuery>("fake_cuda_query")(question); }

/// A context of device 0 that is current, and no faults when the test ends.
struct Fixture {
  CUcontext context = nullptr;
  CUstream stream = nullptr;

  Fixture() {
    REQUIRE(driver().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(driver().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    REQUIRE(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  }
  ~Fixture() {
    control("heal; memory 150323855360; sm 90");
    driver().cuCtxPopCurrent_v2(nullptr);
    driver().cuDevicePrimaryCtxRelease_v2(0);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  CUdeviceptr allocate(std::size_t bytes) const {
    CUdeviceptr pointer = 0;
    REQUIRE(driver().cuMemAlloc_v2(&pointer, bytes) == CUDA_SUCCESS);
    return pointer;
  }
  template <typename T>
  [[nodiscard]] CUdeviceptr upload(const std::vector<T>& values) const {
    const CUdeviceptr pointer = allocate(values.size() * sizeof(T));
    REQUIRE(driver().cuMemcpyHtoD_v2(pointer, values.data(), values.size() * sizeof(T)) == CUDA_SUCCESS);
    return pointer;
  }
  template <typename T>
  [[nodiscard]] std::vector<T> download(CUdeviceptr pointer, std::size_t count) const {
    std::vector<T> values(count);
    REQUIRE(driver().cuMemcpyDtoH_v2(values.data(), pointer, count * sizeof(T)) == CUDA_SUCCESS);
    return values;
  }
};

/// `fill_values<float>` of templates/internal's signature, compiled by the real NVRTC.
inline const kiln::jit::Cubin& fill_cubin(const std::string& arch = "sm_90a") {
  static std::map<std::string, kiln::jit::Cubin> compiled;
  auto found = compiled.find(arch);
  if (found != compiled.end()) return found->second;
  kiln::jit::Specialisation specialisation;
  specialisation.label = "fill";
  specialisation.entry = "fill.cuh";
  specialisation.files = std::vector<kiln::manifest::SourceFile>{
      {"fill.cuh",
       "template <typename T> __global__ __launch_bounds__(256) void fill_values(T* out, long long count, "
       "unsigned long long seed, int kind, double scale) {\n"
       "  __shared__ float shared[64]; shared[threadIdx.x % 64] = static_cast<float>(scale); __syncthreads();\n"
       "  for (long long i = threadIdx.x; i < count; i += 256) out[i] = shared[i % 64] + seed + kind;\n}\n"}};
  specialisation.name_expressions = {"fill_values<float>"};
  specialisation.arch = arch;
  return compiled.emplace(arch, kiln::jit::compile(specialisation)).first->second;
}

struct FillKernel {
  CUmodule module = nullptr;
  CUfunction function = nullptr;

  FillKernel() {
    REQUIRE(driver().cuModuleLoadDataEx(&module, fill_cubin().image.data(), 0, nullptr, nullptr) == CUDA_SUCCESS);
    REQUIRE(driver().cuModuleGetFunction(&function, module, fill_cubin().lowered_names.at(0).c_str()) == CUDA_SUCCESS);
  }
  /// Ones times `scale`.
  [[nodiscard]] CUresult launch(CUdeviceptr out, long long count, double scale, CUstream stream,
                                unsigned threads = 256) const {
    unsigned long long seed = 1;
    int kind = 2;
    void* parameters[] = {&out, &count, &seed, &kind, &scale};
    return driver().cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
  }
};

}  // namespace fake_cuda_tests

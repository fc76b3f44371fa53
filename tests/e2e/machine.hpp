// The fake machine as a user's program holds it: the driver that kiln opens, its memory, and what can go wrong on demand.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver/control.hpp"
#include "kiln/kiln.hpp"

struct CUctx_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace e2e {

/// A function of the library that KILN_CUDA_LIBRARY names: the one that kiln opens too.
template <typename Function>
Function* driver_function(const char* name) {
  const char* path = std::getenv("KILN_CUDA_LIBRARY");
  REQUIRE_MESSAGE(path != nullptr, "run this through ctest, which sets KILN_CUDA_LIBRARY");
  static void* library = dlopen(path, RTLD_NOW);
  void* function = dlsym(library, name);
  REQUIRE_MESSAGE(function != nullptr, std::string(name));
  return reinterpret_cast<Function*>(function);
}
template <typename... Parameters, typename... Arguments>
unsigned driver_call(const char* name, Arguments... arguments) {
  return driver_function<unsigned(Parameters...)>(name)(arguments...);
}

inline void control(const std::string& command) {
  REQUIRE(driver_function<int(const char*)>("fake_cuda_control")(command.c_str()) == 0);
}
inline std::int64_t query(const std::string& question) {
  return driver_function<std::int64_t(const char*)>("fake_cuda_query")(question.c_str());
}

/// A device's primary context, current on this thread, and a stream; no faults and no memory of this test's when it is gone.
class Machine {
 public:
  explicit Machine(int device = 0) : device_(device) {
    REQUIRE(driver_call<unsigned>("cuInit", 0U) == 0);
    REQUIRE(driver_call<CUctx_st**, int>("cuDevicePrimaryCtxRetain", &context_, device) == 0);
    REQUIRE(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", context_) == 0);
    REQUIRE(driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &stream_, 1U) == 0);
  }
  ~Machine() {
    control("heal; memory 150323855360");
    driver_call<CUctx_st**>("cuCtxPopCurrent_v2", nullptr);
    driver_call<int>("cuDevicePrimaryCtxRelease_v2", device_);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] kiln::Stream stream() const noexcept { return stream_; }
  [[nodiscard]] CUctx_st* context() const noexcept { return context_; }
  void synchronize() const { REQUIRE(driver_call<kiln::Stream>("cuStreamSynchronize", stream_) == 0); }

 private:
  int device_;
  CUctx_st* context_ = nullptr;
  kiln::Stream stream_ = nullptr;
};

/// Device memory of `count` floats, and a little more so that a misaligned beginning stays inside.
class Floats {
 public:
  explicit Floats(std::size_t count) : count_(count) {
    REQUIRE(driver_call<unsigned long long*, std::size_t>("cuMemAlloc_v2", &pointer_, (count + 16) * sizeof(float)) ==
            0);
  }
  explicit Floats(const std::vector<float>& values) : Floats(values.size()) { upload(values); }
  ~Floats() { driver_call<unsigned long long>("cuMemFree_v2", pointer_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  [[nodiscard]] const void* address(std::size_t offset_bytes = 0) const {
    return reinterpret_cast<const void*>(pointer_ + offset_bytes);
  }
  void upload(const std::vector<float>& values, std::size_t offset_bytes = 0) const {
    REQUIRE(driver_call<unsigned long long, const void*, std::size_t>(
                "cuMemcpyHtoD_v2", pointer_ + offset_bytes, values.data(), values.size() * sizeof(float)) == 0);
  }
  [[nodiscard]] std::vector<float> download() const {
    std::vector<float> values(count_);
    REQUIRE(driver_call<void*, unsigned long long, std::size_t>("cuMemcpyDtoH_v2", values.data(), pointer_,
                                                                count_ * sizeof(float)) == 0);
    return values;
  }

 private:
  std::size_t count_;
  unsigned long long pointer_ = 0;
};

inline std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 97) / 8 - 6;
  return values;
}

}  // namespace e2e

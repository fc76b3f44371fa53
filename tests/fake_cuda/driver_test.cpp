#include "fake_cuda/fixture.hpp"

namespace fake_cuda_tests {

TEST_CASE("the fake device has the figures of an H200") {
  const Fixture fixture;
  const auto attribute = [](CUdevice_attribute which) {
    int value = 0;
    CHECK(driver().cuDeviceGetAttribute(&value, which, 0) == CUDA_SUCCESS);
    return value;
  };
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 9);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 132);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) == 62914560);
  CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == 232448);
}

TEST_CASE("calls without a current context, or with a device that there is not, are refused") {
  CUstream stream = nullptr;
  driver();
  CHECK(driver().cuStreamCreate(&stream, 0) == CUDA_ERROR_INVALID_CONTEXT);
  CUdevice device = 0;
  CHECK(driver().cuDeviceGet(&device, 1) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("the Nth call fails, once or from then on, until it is healed") {
  const Fixture fixture;
  control("fail cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY at 2; fail cuEventCreate 719 sticky");
  CUdeviceptr pointer = 0;
  CHECK(driver().cuMemAlloc_v2(&pointer, 64) == CUDA_SUCCESS);
  CHECK(driver().cuMemAlloc_v2(&pointer, 64) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(driver().cuMemAlloc_v2(&pointer, 64) == CUDA_SUCCESS);
  CUevent event = nullptr;
  CHECK(driver().cuEventCreate(&event, 0) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(driver().cuEventCreate(&event, 0) == CUDA_ERROR_LAUNCH_FAILED);
  control("heal");
  CHECK(driver().cuEventCreate(&event, 0) == CUDA_SUCCESS);
}

TEST_CASE("a command that is not understood changes nothing") {
  const Fixture fixture;
  CHECK(extra<FakeCudaControl>("fake_cuda_control")("memory 100; nonsense 3") == 1);
  CHECK(extra<FakeCudaControl>("fake_cuda_control")("memory many") == 1);
  CHECK(query("nonsense") == -1);
  CHECK(driver().cuMemFree_v2(fixture.allocate(4096)) == CUDA_SUCCESS);
}

TEST_CASE("a context that nobody retains takes its memory and its handles with it") {
  {
    const Fixture fixture;
    fixture.allocate(1024);
    CHECK(query("allocations") == 1);
    CHECK(query("handles") == 1);
  }
  CHECK(query("allocations") == 0);
  CHECK(query("handles") == 0);
}

}  // namespace fake_cuda_tests

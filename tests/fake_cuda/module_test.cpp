#include "fake_cuda/fixture.hpp"

namespace fake_cuda_tests {

TEST_CASE("a cubin tells its kernels, their registers and their shared memory") {
  const Fixture fixture;
  const FillKernel kernel;
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    CHECK(driver().cuFuncGetAttribute(&value, which, kernel.function) == CUDA_SUCCESS);
    return value;
  };
  CHECK(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS) > 0);
  CHECK(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS) <= 255);
  CHECK(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 256);
  CHECK(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 256);
  int blocks = 0;
  CHECK(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function, 256, 0) == CUDA_SUCCESS);
  CHECK(blocks == 8);
  CUfunction none = nullptr;
  CHECK(driver().cuModuleGetFunction(&none, kernel.module, "no_such_kernel") == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("what is no cubin, or one for another architecture, is refused") {
  const Fixture fixture;
  CUmodule module = nullptr;
  const std::vector<char> text(4096, 'x');
  CHECK(driver().cuModuleLoadDataEx(&module, text.data(), 0, nullptr, nullptr) == CUDA_ERROR_INVALID_IMAGE);
  control("sm 100");
  CHECK(driver().cuModuleLoadDataEx(&module, fill_cubin().image.data(), 0, nullptr, nullptr) ==
        CUDA_ERROR_NO_BINARY_FOR_GPU);
  control("sm 80");
  CHECK(driver().cuModuleLoadDataEx(&module, fill_cubin("sm_80").image.data(), 0, nullptr, nullptr) == CUDA_SUCCESS);
}

TEST_CASE("a module that holds a named kernel can be made to be refused") {
  const Fixture fixture;
  CUmodule module = nullptr;
  control("module CUDA_ERROR_INVALID_IMAGE fill_values<float>");
  CHECK(driver().cuModuleLoadDataEx(&module, fill_cubin().image.data(), 0, nullptr, nullptr) ==
        CUDA_ERROR_INVALID_IMAGE);
  control("heal");
  CHECK(driver().cuModuleLoadDataEx(&module, fill_cubin().image.data(), 0, nullptr, nullptr) == CUDA_SUCCESS);
}

TEST_CASE("dynamic shared memory is limited until it is raised, and then by the device") {
  const Fixture fixture;
  const FillKernel kernel;
  CHECK(driver().cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(driver().cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200000) ==
        CUDA_SUCCESS);
}

TEST_CASE("an unloaded module's functions are no longer valid") {
  const Fixture fixture;
  const FillKernel kernel;
  REQUIRE(driver().cuModuleUnload(kernel.module) == CUDA_SUCCESS);
  CHECK(kernel.launch(fixture.allocate(64), 16, 1, fixture.stream) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a tensor map keeps the driver's limits") {
  const Fixture fixture;
  const CUdeviceptr pointer = fixture.allocate(1 << 16);
  CUtensorMap map;
  const auto encode = [&](CUdeviceptr address, std::uint64_t stride_bytes, std::uint32_t inner) {
    const std::uint64_t shape[] = {64, 32}, strides[] = {stride_bytes};
    const std::uint32_t box[] = {inner, 8}, steps[] = {1, 1};
    return driver().cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, reinterpret_cast<void*>(address),
                                           shape, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CHECK(encode(pointer, 128, 64) == CUDA_SUCCESS);
  CHECK(encode(pointer + 8, 128, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(encode(pointer, 130, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(encode(pointer, 128, 128) == CUDA_ERROR_INVALID_VALUE);
}

}  // namespace fake_cuda_tests

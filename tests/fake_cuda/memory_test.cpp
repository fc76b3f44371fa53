#include "fake_cuda/fixture.hpp"

namespace fake_cuda_tests {

TEST_CASE("memory beyond the limit is refused, and what was freed can be had again") {
  const Fixture fixture;
  control("memory 10000");
  const CUdeviceptr first = fixture.allocate(6000);
  CUdeviceptr second = 0;
  CHECK(driver().cuMemAlloc_v2(&second, 6000) == CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t free_bytes = 0, total = 0;
  CHECK(driver().cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
  CHECK(free_bytes == 4000);
  CHECK(driver().cuMemFree_v2(first) == CUDA_SUCCESS);
  CHECK(driver().cuMemFree_v2(first) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver().cuMemAlloc_v2(&second, 6000) == CUDA_SUCCESS);
}

TEST_CASE("copies and fills outside an allocation are refused") {
  const Fixture fixture;
  const CUdeviceptr pointer = fixture.allocate(256);
  std::vector<char> host(512);
  CHECK(driver().cuMemcpyDtoH_v2(host.data(), pointer, 257) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver().cuMemcpyHtoD_v2(pointer + 250, host.data(), 7) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver().cuMemsetD8Async(pointer, 1, 256, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuMemsetD8Async(pointer, 1, 257, fixture.stream) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a large fill with zeros clears every byte and no other") {
  const Fixture fixture;
  constexpr std::size_t bytes = std::size_t{1} << 21;
  const CUdeviceptr pointer = fixture.allocate(bytes);
  REQUIRE(driver().cuMemsetD8Async(pointer, 7, bytes, fixture.stream) == CUDA_SUCCESS);
  REQUIRE(driver().cuMemsetD8Async(pointer + 5, 0, bytes - 105, fixture.stream) == CUDA_SUCCESS);
  const std::vector<char> host = fixture.download<char>(pointer, bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    const char expected = i < 5 || i >= bytes - 100 ? 7 : 0;
    if (host[i] != expected) FAIL("byte ", i, " is ", int{host[i]});
  }
}

TEST_CASE("an address is traced to its allocation") {
  const Fixture fixture;
  const CUdeviceptr pointer = fixture.allocate(1000);
  CUdeviceptr begin = 0;
  std::size_t size = 0;
  int device = -1;
  CHECK(driver().cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer + 100) == CUDA_SUCCESS);
  CHECK(driver().cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer + 100) == CUDA_SUCCESS);
  CHECK(driver().cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer) == CUDA_SUCCESS);
  CHECK(begin == pointer);
  CHECK(size == 1000);
  CHECK(device == 0);
  CHECK(driver().cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer + 1000) ==
        CUDA_ERROR_INVALID_VALUE);
}

}  // namespace fake_cuda_tests

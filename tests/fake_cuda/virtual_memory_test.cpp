// Memory apart from addresses, which other processes map through a file descriptor.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda/fixture.hpp"

namespace fake_cuda_tests {
namespace {

constexpr std::size_t granule = std::size_t{2} << 20;

CUmemAllocationProp on_device(CUmemAllocationHandleType handles) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = handles;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

CUmemGenericAllocationHandle create(std::size_t bytes) {
  const CUmemAllocationProp properties = on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(driver().cuMemCreate(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
  return handle;
}

CUdeviceptr map(CUmemGenericAllocationHandle handle, std::size_t bytes) {
  CUdeviceptr pointer = 0;
  REQUIRE(driver().cuMemAddressReserve(&pointer, bytes, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(driver().cuMemMap(pointer, bytes, 0, handle, 0) == CUDA_SUCCESS);
  return pointer;
}

CUresult allow(CUdeviceptr pointer, std::size_t bytes) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver().cuMemSetAccess(pointer, bytes, &access, 1);
}

void unmap(CUdeviceptr pointer, std::size_t bytes) {
  CHECK(driver().cuMemUnmap(pointer, bytes) == CUDA_SUCCESS);
  CHECK(driver().cuMemAddressFree(pointer, bytes) == CUDA_SUCCESS);
}

int export_descriptor(CUmemGenericAllocationHandle handle) {
  int descriptor = -1;
  REQUIRE(driver().cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_SUCCESS);
  return descriptor;
}

CUresult import(CUmemGenericAllocationHandle& handle, int descriptor) {
  return driver().cuMemImportFromShareableHandle(&handle,
                                                 reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

}  // namespace

TEST_CASE("memory that is mapped twice is one memory, also by an imported descriptor, and outlives its handles") {
  const Fixture fixture;
  const CUmemGenericAllocationHandle handle = create(granule);
  const int descriptor = export_descriptor(handle);
  CUmemGenericAllocationHandle imported = 0;
  REQUIRE(import(imported, descriptor) == CUDA_SUCCESS);
  close(descriptor);
  const CUdeviceptr first = map(handle, granule), second = map(imported, granule);
  REQUIRE(allow(first, granule) == CUDA_SUCCESS);
  REQUIRE(allow(second, granule) == CUDA_SUCCESS);
  CHECK(driver().cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(driver().cuMemRelease(imported) == CUDA_SUCCESS);
  REQUIRE(driver().cuMemsetD8Async(first, 9, granule, fixture.stream) == CUDA_SUCCESS);
  CHECK(fixture.download<char>(second + granule - 1, 1)[0] == 9);
  REQUIRE(driver().cuMemsetD8Async(first, 0, granule, fixture.stream) == CUDA_SUCCESS);
  CHECK(fixture.download<char>(second + granule - 1, 1)[0] == 0);
  unmap(first, granule);
  CHECK(fixture.download<char>(second, 1)[0] == 0);
  unmap(second, granule);
  CHECK(query("mappings") == 0);
}

TEST_CASE("memory cannot be reached before access is set, nor after it is unmapped, and cuMemFree does not take it") {
  const Fixture fixture;
  const CUmemGenericAllocationHandle handle = create(granule);
  const CUdeviceptr pointer = map(handle, granule);
  CHECK(driver().cuMemsetD8Async(pointer, 1, 1, fixture.stream) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(allow(pointer, granule) == CUDA_SUCCESS);
  CHECK(driver().cuMemsetD8Async(pointer, 1, 1, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuMemFree_v2(pointer) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver().cuMemAddressFree(pointer, granule) == CUDA_ERROR_INVALID_VALUE);
  unmap(pointer, granule);
  CHECK(driver().cuMemsetD8Async(pointer, 1, 1, fixture.stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver().cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(driver().cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("sizes off the granularity, occupied addresses, foreign descriptors and private memory are refused") {
  const Fixture fixture;
  const CUmemAllocationProp shared = on_device(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUmemAllocationProp local = on_device(CU_MEM_HANDLE_TYPE_NONE);
  CUmemGenericAllocationHandle handle = 0, imported = 0;
  CHECK(driver().cuMemCreate(&handle, 4096, &shared, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(driver().cuMemCreate(&handle, granule, &local, 0) == CUDA_SUCCESS);
  int descriptor = -1;
  CHECK(driver().cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
        CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr pointer = map(handle, granule);
  CHECK(driver().cuMemMap(pointer, granule, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(driver().cuMemMap(pointer + granule, granule, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  unmap(pointer, granule);
  CHECK(driver().cuMemRelease(handle) == CUDA_SUCCESS);
  const int foreign = memfd_create("another", MFD_CLOEXEC);
  CHECK(import(imported, foreign) == CUDA_ERROR_INVALID_VALUE);
  close(foreign);
}

TEST_CASE("created memory counts against the device's limit beside allocated memory") {
  const Fixture fixture;
  control("memory 6291456");
  const CUmemGenericAllocationHandle handle = create(2 * granule);
  CUdeviceptr pointer = 0;
  CHECK(driver().cuMemAlloc_v2(&pointer, granule + 1) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(driver().cuMemAlloc_v2(&pointer, granule) == CUDA_SUCCESS);
  const CUmemAllocationProp properties = on_device(CU_MEM_HANDLE_TYPE_NONE);
  CUmemGenericAllocationHandle more = 0;
  CHECK(driver().cuMemCreate(&more, granule, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(driver().cuMemRelease(handle) == CUDA_SUCCESS);
  REQUIRE(driver().cuMemCreate(&more, granule, &properties, 0) == CUDA_SUCCESS);
  CHECK(driver().cuMemRelease(more) == CUDA_SUCCESS);
}

}  // namespace fake_cuda_tests

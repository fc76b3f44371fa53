#include <utility>

#include "cuda/device.hpp"
#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

[[noreturn]] void throw_out_of_memory(std::int64_t bytes) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  std::string found;
  if (Driver::get().cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
    found = "; " + std::to_string(free_bytes) + " of " + std::to_string(total_bytes) + " bytes are free";
  }
  throw Error(ErrorKind::out_of_memory, "allocating " + std::to_string(bytes) + " bytes of device memory failed" +
                                            found + ". Free some, or ask for a smaller problem");
}

void check_range(const char* what, std::int64_t bytes, std::int64_t available) {
  if (bytes >= 0 && bytes <= available) return;
  throw Error(ErrorKind::bad_input, std::string(what) + ": " + std::to_string(bytes) +
                                        " bytes were asked for; the buffer holds " + std::to_string(available) + ".");
}

}  // namespace

Buffer::Buffer(std::int64_t bytes) : bytes_(bytes) {
  if (bytes < 0) throw Error(ErrorKind::bad_input, "a buffer of " + std::to_string(bytes) + " bytes was asked for");
  if (bytes == 0) return;  // the driver refuses an empty allocation
  const CUresult result = Driver::get().cuMemAlloc_v2(&pointer_, static_cast<std::size_t>(bytes));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_memory(bytes);
  check(result, "allocating device memory");
}

Buffer::~Buffer() {
  if (pointer_ == 0) return;
  if (release_)
    release_();
  else
    Driver::find()->cuMemFree_v2(pointer_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : pointer_(std::exchange(other.pointer_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      release_(std::exchange(other.release_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  std::swap(release_, other.release_);
  return *this;
}

void Buffer::fill_bytes(unsigned char value, CUstream stream) const { fill_bytes(value, 0, bytes_, stream); }

void Buffer::fill_bytes(unsigned char value, std::int64_t offset, std::int64_t bytes, CUstream stream) const {
  check_range("filling a buffer", offset + bytes, bytes_);
  if (bytes == 0) return;
  check(Driver::get().cuMemsetD8Async(pointer_ + static_cast<CUdeviceptr>(offset), value,
                                      static_cast<std::size_t>(bytes), stream),
        "filling a buffer");
}

void Buffer::copy_to_host(void* destination, std::int64_t bytes, CUstream stream) const {
  check_range("copying a buffer to the host", bytes, bytes_);
  if (bytes == 0) return;
  const Driver& driver = Driver::get();
  check(driver.cuMemcpyDtoHAsync_v2(destination, pointer_, static_cast<std::size_t>(bytes), stream),
        "copying to the host");
  check(driver.cuStreamSynchronize(stream), "copying to the host");
}

void Buffer::copy_from_host(const void* source, std::int64_t bytes, CUstream stream) const {
  check_range("copying from the host to a buffer", bytes, bytes_);
  if (bytes == 0) return;
  const Driver& driver = Driver::get();
  check(driver.cuMemcpyHtoDAsync_v2(pointer_, source, static_cast<std::size_t>(bytes), stream),
        "copying to the device");
  check(driver.cuStreamSynchronize(stream), "copying to the device");
}

}  // namespace kiln::cuda

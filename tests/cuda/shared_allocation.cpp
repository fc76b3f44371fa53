// Memory that processes share: what it asks of a driver, and the descriptors that it gives.
#include "cuda/shared_allocation.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "kiln/error.hpp"

using namespace kiln;

namespace {

const bool no_device = cuda::Driver::find() == nullptr;

std::string refusal(const cuda::Driver& driver) {
  try {
    cuda::require_virtual_memory(driver);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::no_driver);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a driver without virtual memory and queries of peers can be opened, and is refused where memory is shared") {
  const cuda::Driver least = cuda::Driver::open(LEAST_DRIVER);
  CHECK((least.cuMemCreate == nullptr));
  CHECK((least.cuDeviceCanAccessPeer == nullptr));
  CHECK((least.cuDeviceGetP2PAttribute == nullptr));
  const std::string said = refusal(least);
  CHECK(said.find(LEAST_DRIVER " lacks cuMemGetAllocationGranularity; install") != std::string::npos);
}

TEST_CASE("the one function that a driver lacks is named" * doctest::skip(no_device)) {
  cuda::Driver driver = cuda::Driver::get();
  CHECK(refusal(driver) == "no error");
  driver.cuMemSetAccess = nullptr;
  CHECK(refusal(driver).find("lacks cuMemSetAccess;") != std::string::npos);
}

TEST_CASE("no program that the process starts inherits an exported descriptor" * doctest::skip(no_device)) {
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const auto memory = cuda::SharedAllocation::create(1, 0);
  const int descriptor = memory.descriptor();
  CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  close(descriptor);
}

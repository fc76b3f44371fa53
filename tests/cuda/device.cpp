// Runs on the fake driver in the build's own tests, and on a real one where KILN_CUDA_LIBRARY is unset.
#include "cuda/device.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/gate.hpp"
#include "kiln/error.hpp"

using namespace kiln;

namespace {

const bool no_device = cuda::Driver::find() == nullptr;

template <typename Action>
ErrorKind kind_thrown_by(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::io;
}

CUcontext current_context() {
  CUcontext context = nullptr;
  cuda::Driver::get().cuCtxGetCurrent(&context);
  return context;
}

}  // namespace

TEST_CASE("devices tell their silicon, and one that is not there is an error" * doctest::skip(no_device)) {
  const std::vector<cuda::DeviceInfo> all = cuda::devices();
  REQUIRE_FALSE(all.empty());
  CHECK(all[0].facts.sm() >= 50);
  CHECK(all[0].facts.sm_count() > 0);
  CHECK(all[0].facts.shared_per_block() >= 48 * 1024);
  CHECK(all[0].facts.memory_bus_bits > 0);
  CHECK(all[0].memory_bytes > 0);
  CHECK(all[0].driver_version >= 12000);
  CHECK_FALSE(all[0].name.empty());
  CHECK(kind_thrown_by([&] { cuda::device_info(static_cast<int>(all.size())); }) == ErrorKind::no_device);
  CHECK(kind_thrown_by([] { cuda::device_info(-1); }) == ErrorKind::no_device);
}

TEST_CASE("a context is current within its scope, and what was current comes back" * doctest::skip(no_device)) {
  const CUcontext before = current_context();
  const cuda::Context context(0);
  CHECK(current_context() == before);
  {
    const cuda::Context::Scope scope(context);
    CHECK(current_context() == context.handle());
    { const cuda::Context::Scope inner(context); }
    CHECK(current_context() == context.handle());
  }
  CHECK(current_context() == before);
}

TEST_CASE("a buffer holds what is copied and filled, and moves" * doctest::skip(no_device)) {
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const cuda::Stream stream;
  const std::vector<std::int32_t> sent = {1, -2, 3, 1 << 30};
  const auto bytes = static_cast<std::int64_t>(sent.size() * sizeof sent[0]);
  cuda::Buffer first(bytes);
  first.copy_from_host(sent.data(), bytes);
  cuda::Buffer second = std::move(first);
  CHECK(first.pointer() == 0);
  std::vector<std::int32_t> received(sent.size());
  second.copy_to_host(received.data(), bytes);
  CHECK(received == sent);
  second.fill_bytes(0xff, stream.handle());
  stream.synchronize();
  second.copy_to_host(received.data(), bytes);
  CHECK(received == std::vector<std::int32_t>(sent.size(), -1));
  CHECK(kind_thrown_by([&] { second.copy_to_host(received.data(), bytes + 1); }) == ErrorKind::bad_input);
}

TEST_CASE("memory that cannot be had is an error that names the bytes asked for and free" * doctest::skip(no_device)) {
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const std::int64_t too_much = context.info().memory_bytes * 4;
  try {
    const cuda::Buffer buffer(too_much);
    FAIL("four times the device's memory was given");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::out_of_memory);
    CHECK(std::string(error.what()).find(std::to_string(too_much)) != std::string::npos);
    CHECK(std::string(error.what()).find("are free") != std::string::npos);
  }
}

TEST_CASE("events on a stream give a time that does not run backwards" * doctest::skip(no_device)) {
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const cuda::Stream stream;
  const cuda::Buffer buffer(1 << 20);
  const cuda::Event begin;
  const cuda::Event end;
  begin.record(stream.handle());
  buffer.fill_bytes(0, stream.handle());
  end.record(stream.handle());
  end.synchronize();
  CHECK(cuda::Event::elapsed_ns(begin, end) >= 0);
}

TEST_CASE("a stream is known to capture while it does" * doctest::skip(no_device)) {
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const cuda::Driver& driver = cuda::Driver::get();
  const cuda::Stream stream;
  CHECK_FALSE(cuda::is_capturing(stream.handle()));
  cuda::check(driver.cuStreamBeginCapture_v2(stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capturing");
  CHECK(cuda::is_capturing(stream.handle()));
  CUgraph graph = nullptr;
  cuda::check(driver.cuStreamEndCapture(stream.handle(), &graph), "ending a capture");
  CHECK_FALSE(cuda::is_capturing(stream.handle()));
  driver.cuGraphDestroy(graph);
}

TEST_CASE("a gate opens by itself where what is enqueued behind it waits" * doctest::skip(no_device)) {
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const cuda::Stream stream;
  cuda::Gate patient(std::chrono::minutes(5));
  CHECK(patient.hold(stream.handle(), [] {}));
  cuda::Gate gate(std::chrono::milliseconds(20));
  CHECK_FALSE(gate.hold(stream.handle(), [&] {
    // As a driver does whose queue is full.
    stream.synchronize();
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }));
  stream.synchronize();
}

#include "cuda/device.hpp"

#include <pthread.h>

#include <array>
#include <cmath>

#include "kiln/error.hpp"

namespace kiln::cuda {
namespace {

constinit bool forked = false;  // written where there is one thread

/// Called for the first Context: a child that was forked earlier may use CUDA.
void watch_forks() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  if (watched != 0) throw Error(ErrorKind::out_of_memory, "there is no memory to be told of forks");
}

std::int64_t attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(Driver::get().cuDeviceGetAttribute(&value, which, device), "reading a device attribute");
  return value;
}

/// The order of `values` is that of DeviceFacts::names.
manifest::DeviceFacts facts_of(CUdevice device) {
  manifest::DeviceFacts facts;
  facts.values = {attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                      attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                  attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                  attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                  attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
                  attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
                  attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
                  attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)};
  facts.memory_bus_bits = attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  return facts;
}

/// Where processes share a device by MPS, its mode holds for MPS alone. Drivers before CUDA 12 do not know that
/// attribute.
ComputeMode mode_of(CUdevice device) {
  constexpr int exclusive_process = 3, prohibited = 2;
  int by_mps = 0;
  const auto mode = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  if (mode == prohibited) return ComputeMode::prohibited;
  if (mode != exclusive_process) return ComputeMode::shared;
  const CUresult known = Driver::get().cuDeviceGetAttribute(&by_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
  return known == CUDA_SUCCESS && by_mps != 0 ? ComputeMode::shared : ComputeMode::exclusive;
}

/// Retains a device's primary context.
CUcontext retained(const DeviceInfo& info, CUdevice device) {
  CUcontext context = nullptr;
  const CUresult result = Driver::get().cuDevicePrimaryCtxRetain(&context, device);
  const std::string remedy = "set the mode by nvidia-smi -i " + std::to_string(info.ordinal) + " -c DEFAULT";
  std::string what = "retaining a device's primary context";
  if (result == CUDA_ERROR_DEVICE_UNAVAILABLE && info.mode == ComputeMode::prohibited)
    what = "GPU " + std::to_string(info.ordinal) +
           " is in the compute mode 'prohibited', which refuses every process; " + remedy;
  else if (result == CUDA_ERROR_DEVICE_UNAVAILABLE)
    what = "GPU " + std::to_string(info.ordinal) +
           (info.mode == ComputeMode::exclusive
                ? " is in exclusive-process mode and another process has it; end that process, or "
                : " is not available, as where another process has it in exclusive-process mode; ") +
           remedy;
  check(result, what.c_str());
  return context;
}

int device_count() {
  int count = 0;
  check(Driver::get().cuDeviceGetCount(&count), "counting devices");
  return count;
}

CUdevice device_at(int ordinal) {
  CUdevice device = 0;
  check(Driver::get().cuDeviceGet(&device, ordinal), "opening a device");
  return device;
}

DeviceInfo info_for_context(int ordinal) {
  watch_forks();
  return device_info(ordinal);
}

}  // namespace

bool is_forked() noexcept { return forked; }

void require_not_forked() {
  if (forked) [[unlikely]]
    throw Error(
        ErrorKind::driver_failed,
        "this process was forked from one that had an engine, and CUDA does not work in such a child: nothing can be "
        "launched or made ready here. Fork before the first engine is made, or begin the child as a new program (exec; "
        "the start method 'spawn' of Python's multiprocessing)");
}

int driver_version() noexcept {
  int version = 0;
  const Driver* driver = Driver::find();
  return driver != nullptr && driver->cuDriverGetVersion(&version) == CUDA_SUCCESS ? version : 0;
}

DeviceInfo device_info(int ordinal) {
  require_not_forked();
  const Driver& driver = Driver::get();
  if (const int count = device_count(); ordinal < 0 || ordinal >= count) {
    throw Error(ErrorKind::no_device, "device " + std::to_string(ordinal) + " was asked for; the driver sees " +
                                          std::to_string(count) +
                                          ", counted from 0. Choose another, or check CUDA_VISIBLE_DEVICES");
  }
  const CUdevice device = device_at(ordinal);
  DeviceInfo info;
  info.ordinal = ordinal;
  std::array<char, 256> name{};
  check(driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device), "reading a device's name");
  info.name = name.data();
  std::size_t bytes = 0;
  check(driver.cuDeviceTotalMem_v2(&bytes, device), "reading a device's memory size");
  info.memory_bytes = static_cast<std::int64_t>(bytes);
  check(driver.cuDriverGetVersion(&info.driver_version), "reading the driver's version");
  info.facts = facts_of(device);
  info.mode = mode_of(device);
  return info;
}

std::vector<DeviceInfo> devices() {
  require_not_forked();
  std::vector<DeviceInfo> all;
  for (int ordinal = 0, count = device_count(); ordinal < count; ++ordinal) all.push_back(device_info(ordinal));
  return all;
}

Context::Context(int ordinal, manifest::TeamLink link) : info_(info_for_context(ordinal)) {
  info_.facts.link = link;
  context_ = retained(info_, device_at(ordinal));
}

Context::~Context() {
  const Driver& driver = *Driver::find();
  CUdevice device = 0;
  if (driver.cuDeviceGet(&device, info_.ordinal) == CUDA_SUCCESS) driver.cuDevicePrimaryCtxRelease_v2(device);
}

Context::Scope::Scope(const Context& context) {
  require_not_forked();
  check(Driver::get().cuCtxPushCurrent_v2(context.handle()), "making a context current");
}

Context::Scope::~Scope() {
  CUcontext popped = nullptr;
  Driver::find()->cuCtxPopCurrent_v2(&popped);
}

Context::Guest::Guest(const Context& context) noexcept
    : pushed_(Driver::find()->cuCtxPushCurrent_v2(context.handle()) == CUDA_SUCCESS) {}

Context::Guest::~Guest() {
  CUcontext popped = nullptr;
  if (pushed_) Driver::find()->cuCtxPopCurrent_v2(&popped);
}

Stream::Stream() { check(Driver::get().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "creating a stream"); }

Stream::~Stream() { Driver::find()->cuStreamDestroy_v2(stream_); }

void Stream::synchronize() const { check(Driver::get().cuStreamSynchronize(stream_), "waiting for a stream"); }

Event::Event() { check(Driver::get().cuEventCreate(&event_, CU_EVENT_DEFAULT), "creating an event"); }

Event::~Event() {
  if (event_ != nullptr) Driver::find()->cuEventDestroy_v2(event_);
}

void Event::record(CUstream stream) const { check(Driver::get().cuEventRecord(event_, stream), "recording an event"); }

void Event::synchronize() const { check(Driver::get().cuEventSynchronize(event_), "waiting for an event"); }

double Event::elapsed_ns(const Event& begin, const Event& end) {
  float milliseconds = 0;
  check(Driver::get().cuEventElapsedTime_v2(&milliseconds, begin.event_, end.event_),
        "reading the time between events");
  return std::round(static_cast<double>(milliseconds) *
                    1e6);  // a float of milliseconds resolves no fraction of a nanosecond
}

void RelaxedCapture::exchange() noexcept {
  const auto* function = Driver::find();
  if (function != nullptr && function->cuThreadExchangeStreamCaptureMode != nullptr)
    function->cuThreadExchangeStreamCaptureMode(&mode_);
}

CaptureState capture_state(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = Driver::get().cuStreamIsCapturing(stream, &status);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return CaptureState::excluded;
  if (result == CUDA_ERROR_INVALID_HANDLE)
    throw Error(ErrorKind::bad_input, "the driver does not know the stream: it was destroyed, or is no stream");
  check(result, "asking whether a stream captures");
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? CaptureState::none : CaptureState::capturing;
}

}  // namespace kiln::cuda

// Devices, contexts, streams, events and memory of the CUDA driver as RAII types. Any call may throw
// Error(driver_failed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver_api.hpp"
#include "manifest/op.hpp"

namespace kiln::cuda {

/// Throws Error(out_of_memory) or Error(driver_failed), "WHAT: CUDA_ERROR_NAME (description)", unless result is
/// CUDA_SUCCESS.
void check(CUresult result, const char* what);
/// Returns "CUDA_ERROR_NAME (description)".
std::string describe(CUresult result);

/// Whether this process was forked from one that had a Context. CUDA does not work in such a child, and mutexes that
/// other threads of the parent held stay locked. A destructor must then do nothing, and any other function must throw.
[[nodiscard]] bool is_forked() noexcept;
/// Throws Error(driver_failed) if is_forked().
void require_not_forked();

/// Returns 13000 for CUDA 13.0, or 0 without a driver.
int driver_version() noexcept;

/// Who may have a context on a device.
enum class ComputeMode : std::uint8_t {
  shared,
  exclusive,   // one process at a time
  prohibited,  // none
};

struct DeviceInfo {
  int ordinal = 0;
  std::string name;  // for messages, never for keys
  manifest::DeviceFacts facts;
  std::int64_t memory_bytes = 0;
  int driver_version = 0;  // 13000 for 13.0
  ComputeMode mode = ComputeMode::shared;
};
/// Both throw Error(no_driver), Error(no_device) for an `ordinal` that the driver does not have, and
/// Error(driver_failed) in a forked child (is_forked).
std::vector<DeviceInfo> devices();
DeviceInfo device_info(int ordinal);

/// The device's primary context, retained. Throws Error(no_driver) or Error(no_device), and Error(driver_failed) in a
/// forked child (is_forked), and where the device's ComputeMode refuses this process.
class Context {
 public:
  /// `link`: of the team that the context serves, for its facts.
  explicit Context(int ordinal, manifest::TeamLink link = manifest::TeamLink::none);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  [[nodiscard]] CUcontext handle() const noexcept { return context_; }
  [[nodiscard]] const DeviceInfo& info() const noexcept { return info_; }

  /// Makes the context current on this thread, and restores the previous one at its end. Throws Error(driver_failed).
  class Scope {
   public:
    explicit Scope(const Context& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  /// A Scope for destructors: where the driver refuses, as after a device reset, the thread keeps its context.
  class Guest {
   public:
    explicit Guest(const Context& context) noexcept;
    ~Guest();
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

   private:
    bool pushed_;
  };

 private:
  DeviceInfo info_;
  CUcontext context_ = nullptr;
};

class Stream {
 public:
  Stream();  // non-blocking
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] CUstream handle() const noexcept { return stream_; }
  void synchronize() const;

 private:
  CUstream stream_ = nullptr;
};

class Event {
 public:
  Event();
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  void record(CUstream stream) const;
  void synchronize() const;
  /// Returns whole nanoseconds from `begin` to `end`. Precondition: both events have completed. The resolution is about
  /// 500 ns before driver 12, and 1 ns or more since.
  static double elapsed_ns(const Event& begin, const Event& end);

 private:
  CUevent event_ = nullptr;
};

/// Device memory. Filling or copying past its end throws Error(bad_input).
class Buffer {
 public:
  Buffer() = default;
  /// Throws Error(out_of_memory) naming the bytes asked for and free, or Error(bad_input) for a negative size.
  explicit Buffer(std::int64_t bytes);
  /// Memory that another allocator gave, and that `release` gives back.
  Buffer(CUdeviceptr pointer, std::int64_t bytes, std::function<void()> release)
      : pointer_(pointer), bytes_(bytes), release_(std::move(release)) {}
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  [[nodiscard]] CUdeviceptr pointer() const noexcept { return pointer_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  void fill_bytes(unsigned char value, CUstream stream) const;
  void fill_bytes(unsigned char value, std::int64_t offset, std::int64_t bytes, CUstream stream) const;
  // Both wait for the copy. The legacy stream, which is the default, invalidates a capture on any stream that
  // synchronises with it.
  void copy_to_host(void* destination, std::int64_t bytes, CUstream stream = nullptr) const;
  void copy_from_host(const void* source, std::int64_t bytes, CUstream stream = nullptr) const;

 private:
  CUdeviceptr pointer_ = 0;
  std::int64_t bytes_ = 0;
  std::function<void()> release_;  // none: cuMemFree
};

/// Sets this thread's capture mode to relaxed while it lives. Other threads may capture in the driver's default, global
/// mode: this thread can allocate and load all the same, and does not invalidate their captures.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() noexcept;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // once exchanged: the thread's previous mode
};

enum class CaptureState : std::uint8_t {
  none,
  capturing,
  // The legacy stream while a stream that synchronises with it captures: work on it would invalidate the capture
  excluded,
};
/// One driver call, which is legal during a capture.
CaptureState capture_state(CUstream stream);
/// Returns true when Kiln must not allocate, load or wait for `stream`.
inline bool is_capturing(CUstream stream) { return capture_state(stream) != CaptureState::none; }

}  // namespace kiln::cuda

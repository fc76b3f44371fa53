// Devices, contexts, streams, events and memory of the CUDA driver, each an owner of its handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver_api.hpp"
#include "manifest/op.hpp"

namespace kiln::cuda {

/// Throws Error(driver_failed, or out_of_memory) "WHAT: CUDA_ERROR_NAME (description)" unless result is CUDA_SUCCESS.
void check(CUresult result, const char* what);
/// "CUDA_ERROR_NAME (description)"
std::string describe(CUresult result);

/// Whether this process was forked from one that had a Context. CUDA does not work in such a child, the parent's other threads are not
/// there, and what they had locked stays locked: only destructors that do nothing, and refusals, are safe.
[[nodiscard]] bool is_forked() noexcept;
/// Throws Error(driver_failed) in such a child.
void require_not_forked();

struct DeviceInfo {
  int ordinal = 0;
  std::string name;  // for people, never for keys
  manifest::DeviceFacts facts;
  std::int64_t memory_bytes = 0;
  int driver_version = 0;  // 13000 for 13.0
};
/// Throws Error(no_driver) or Error(no_device).
std::vector<DeviceInfo> devices();
DeviceInfo device_info(int ordinal);

/// The device's primary context, retained; `Scope` makes it current on this thread and restores what was. Neither can be made in a forked
/// child (is_forked).
class Context {
 public:
  explicit Context(int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  [[nodiscard]] CUcontext handle() const noexcept { return context_; }
  [[nodiscard]] const DeviceInfo& info() const noexcept { return info_; }

  class Scope {
   public:
    explicit Scope(const Context& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  /// The same for destructors: where the driver refuses, as after a reset of the device, the thread keeps what it had.
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
  /// Whole nanoseconds from `begin` to `end`, both completed. Resolution about 500 ns before driver 12, 1 ns and up since.
  static double elapsed_ns(const Event& begin, const Event& end);

 private:
  CUevent event_ = nullptr;
};

/// Device memory. Throws Error(out_of_memory) naming the bytes asked for and free.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  [[nodiscard]] CUdeviceptr pointer() const noexcept { return pointer_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  void fill_bytes(unsigned char value, CUstream stream) const;
  void fill_bytes(unsigned char value, std::int64_t offset, std::int64_t bytes, CUstream stream) const;
  // Synchronous. The first two go through the legacy stream, which breaks a capture on any stream that is in order with it.
  void copy_to_host(void* destination, std::int64_t bytes) const;
  void copy_from_host(const void* source, std::int64_t bytes) const;
  void copy_to_host(void* destination, std::int64_t bytes, CUstream stream) const;
  void copy_from_host(const void* source, std::int64_t bytes, CUstream stream) const;

 private:
  CUdeviceptr pointer_ = 0;
  std::int64_t bytes_ = 0;
};

/// While it lives, graphs that other threads capture (in the driver's default mode, which looks at the whole process) neither keep this
/// thread from allocating and loading nor are ended by it.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() noexcept;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // what the thread had before, once exchanged
};

enum class CaptureState : std::uint8_t {
  none,
  capturing,
  excluded,  // the legacy stream, while a stream that is in order with it captures: any work on it would end that capture
};
/// Cheap: one driver call, which no capture minds.
CaptureState capture_state(CUstream stream);
/// True when nothing may be allocated, loaded or waited for on behalf of `stream`.
inline bool is_capturing(CUstream stream) { return capture_state(stream) != CaptureState::none; }

}  // namespace kiln::cuda

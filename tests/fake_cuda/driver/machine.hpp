// All the state of the fake driver: one machine a process, behind one lock.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cuda/driver_types.hpp"
#include "driver/errors.hpp"
#include "driver/faults.hpp"
#include "driver/settings.hpp"
#include "memory/heap.hpp"
#include "memory/virtual_memory.hpp"
#include "module/module.hpp"
#include "stream/footprint.hpp"
#include "stream/graph.hpp"
#include "stream/stream.hpp"

/// A device's primary context.
struct CUctx_st {
  explicit CUctx_st(CUdevice ordinal) : device(ordinal), legacy_stream(std::make_unique<CUstream_st>(*this, true)) {}

  CUdevice device;
  int retained = 0;
  CUresult broken = CUDA_SUCCESS;  // by a kernel: what every later call returns
  std::unique_ptr<CUstream_st> legacy_stream;
  std::map<std::uint64_t, CUstream_st> per_thread_streams;  // by a number that no other thread ever has
};

namespace fake_cuda {

/// Owns objects that the caller knows by a handle, their address unless another is given, and knows those that are no more.
template <typename T>
class Handles {
 public:
  template <typename... From>
  void make_as(T* handle, From&&... from) {
    live_.emplace(handle, std::make_unique<T>(std::forward<From>(from)...));
  }
  template <typename... From>
  T* make(From&&... from) {
    auto made = std::make_unique<T>(std::forward<From>(from)...);
    T* handle = made.get();
    live_.emplace(handle, std::move(made));
    return handle;
  }
  /// `handle`, if it lives. Throws Failure(CUDA_ERROR_INVALID_HANDLE) otherwise.
  T& operator[](T* handle) const {
    const auto found = live_.find(handle);
    require(found != live_.end(), CUDA_ERROR_INVALID_HANDLE);
    return *found->second;
  }
  std::unique_ptr<T> take(T* handle) {
    const auto found = live_.find(handle);
    require(found != live_.end(), CUDA_ERROR_INVALID_HANDLE);
    std::unique_ptr<T> taken = std::move(found->second);
    live_.erase(found);
    return taken;
  }
  void destroy(T* handle) { require(live_.erase(handle) == 1, CUDA_ERROR_INVALID_HANDLE); }
  template <typename Predicate>
  void destroy_if(Predicate predicate) {
    std::erase_if(live_, [&](const auto& entry) { return predicate(*entry.second); });
  }
  [[nodiscard]] std::int64_t count() const noexcept { return static_cast<std::int64_t>(live_.size()); }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [handle, object] : live_) visit(*object);
  }

 private:
  std::unordered_map<T*, std::unique_ptr<T>> live_;
};

struct Machine {
  /// Obeys $FAKE_CUDA when it is made.
  static Machine& get();

  /// Throws Failure(CUDA_ERROR_INVALID_DEVICE).
  void require_device(CUdevice device) const;
  /// By its mode. Of processes that share the file $FAKE_CUDA_EXCLUSIVE, only the first may use devices of mode 3, until it ends.
  bool may_use_devices();
  CUcontext retain(CUdevice device);
  CUstream begin_stream(CUctx_st& context, bool blocking);
  /// The stream's work goes on. Its handle is given to the next stream, as the driver does.
  void end_stream(CUstream stream);
  void release(CUdevice device);
  /// The primary context stays, and all that was made in it goes.
  void empty(CUdevice device);

  /// Returns false, having done nothing, when any statement is not understood.
  bool obey(std::string_view command);
  [[nodiscard]] std::int64_t answer(std::string_view question) const;

  std::mutex mutex;
  std::condition_variable healed;
  bool initialised = false;
  Settings settings;
  Faults faults;
  Footprint footprint;
  Heap heap;
  VirtualMemory virtual_memory;
  std::map<void*, std::unique_ptr<std::byte[]>> host_memory;  // what a broken context can no longer free stays here
  std::unordered_map<CUdevice, std::unique_ptr<CUctx_st>> contexts;
  Handles<CUstream_st> streams;
  std::vector<std::unique_ptr<CUstream_st>> ended_streams;  // with work that has not run
  std::vector<CUstream> free_stream_handles;
  std::uintptr_t last_stream_handle = 0x10000;
  Handles<CUevent_st> events;
  Handles<CUmod_st> modules;
  Handles<CUgraph_st> graphs;
  Handles<CUgraphExec_st> executables;
  std::vector<std::shared_ptr<Capture>> captures;                            // under way
  std::int64_t unsafe_calls = 0, captures_broken = 0, blocked_launches = 0;  // as control.hpp has them
  std::unordered_map<std::string, std::int64_t> launches;                    // by kernel, template arguments and all
  std::set<std::string> library_kernels;                                     // of fake_cuda_launch: loaded

 private:
  Machine();
  int exclusive_ = -1;  // the locked file
};

/// Without a destructor: engines that are static are destroyed after the objects of their thread.
class ContextStack {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] CUcontext back() const noexcept { return contexts_[size_ - 1]; }
  void push_back(CUcontext context) {
    require(size_ < contexts_.size(), CUDA_ERROR_OUT_OF_MEMORY);
    contexts_[size_++] = context;
  }
  void pop_back() noexcept { --size_; }

 private:
  std::array<CUcontext, 64> contexts_{};
  std::size_t size_ = 0;
};

/// The contexts that this thread pushed; the last is current.
ContextStack& context_stack() noexcept;

}  // namespace fake_cuda

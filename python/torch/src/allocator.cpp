// Kiln's workspaces come from torch's allocator, so that one pool serves both: its common pool, since they outlive those of graphs and of
// torch.cuda.use_mem_pool, and torch.compile's graphs refuse memory in their pool that is none of their outputs. A capture's come from the driver.
#include <dlfcn.h>

#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "cuda.hpp"
#include "shim.hpp"

namespace kiln_torch {
namespace {

void* find(void* library, const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr && library != nullptr) found = dlsym(library, name);
  if (found == nullptr)
    fail(std::string("this torch has no CUDA (") + name +
         " is missing); install a build of torch 2.11 or newer with CUDA");
  return found;
}

template <class Function>
void set(Function*& function, void* address) {
  function = reinterpret_cast<Function*>(address);
}

CudaShim load() {
  void* const library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  CudaShim made{};
  set(made.current_stream, find(library, "aoti_torch_get_current_cuda_stream"));
  set(made.new_stream_guard, find(library, "aoti_torch_create_cuda_stream_guard"));
  set(made.delete_stream_guard, find(library, "aoti_torch_delete_cuda_stream_guard"));
  set(made.allocate, find(library, "aoti_torch_cuda_caching_allocator_raw_alloc"));
  set(made.free, find(library, "aoti_torch_cuda_caching_allocator_raw_delete"));
  return made;
}

/// Of libcuda, which Kiln has opened.
struct Driver {
  int (*allocate)(std::uint64_t* address, std::size_t bytes);
  int (*free)(std::uint64_t address);
  int (*exchange_capture_mode)(int* mode);
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_LAZY);
    set(allocate, find(library, "cuMemAlloc_v2"));
    set(free, find(library, "cuMemFree_v2"));
    set(exchange_capture_mode, find(library, "cuThreadExchangeStreamCaptureMode"));
  }
};
const Driver& driver() {
  static const Driver made;
  return made;
}

struct OfCaptures {
  std::mutex mutex;
  std::set<void*> addresses;
};
OfCaptures& of_captures() {
  static auto* const kept = new OfCaptures;  // engines outlive static objects
  return *kept;
}

/// Gives up Python's lock for its lifetime, if this thread has it: torch takes it where it records who allocates.
class WithoutPython {
 public:
  WithoutPython() {
    int (*holds)() = nullptr;
    void* (*save)() = nullptr;
    set(holds, dlsym(RTLD_DEFAULT, "PyGILState_Check"));
    set(save, dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
    set(restore_, dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
    if (holds != nullptr && save != nullptr && restore_ != nullptr && holds() != 0) state_ = save();
  }
  ~WithoutPython() {
    if (state_ != nullptr) restore_(state_);
  }
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;

 private:
  void* state_ = nullptr;
  void (*restore_)(void*) = nullptr;
};

/// Of torch's common pool. Pools for graphs and of torch.cuda.use_mem_pool take what their own thread allocates, so another one does.
void* allocate_apart(std::size_t bytes, kiln_stream stream, std::int32_t device) {
  void* address = nullptr;
  const CudaShim& torch = cuda();
  driver();  // throws here, if at all
  const auto allocate_here = [&] {
    void* guard = nullptr;
    if (torch.new_stream_guard(stream, device, &guard) != 0) return;
    if (torch.allocate(bytes, &address) != 0) address = nullptr;
    torch.delete_stream_guard(guard);
  };
  const WithoutPython released;
  try {
    std::thread([&] {
      int relaxed =
          2;  // CU_STREAM_CAPTURE_MODE_RELAXED, as Kiln has it for the thread that launches: other threads may capture
      driver().exchange_capture_mode(&relaxed);
      allocate_here();
    }).join();
  } catch (const std::system_error&) {  // this process may have no more threads
    allocate_here();
  }
  return address;
}

void* allocate(std::size_t bytes, kiln_stream stream, std::int32_t captured, void* user) try {
  if (captured != 0) {  // Kiln has relaxed the thread's capture mode
    std::uint64_t address = 0;
    if (driver().allocate(&address, bytes) != 0) return nullptr;
    void* const made = reinterpret_cast<void*>(address);
    const std::lock_guard lock(of_captures().mutex);
    of_captures().addresses.insert(made);
    return made;
  }
  return allocate_apart(bytes, stream, static_cast<std::int32_t>(reinterpret_cast<std::intptr_t>(user)));
} catch (const std::exception&) {
  return nullptr;
}

void give_back(void* address, std::size_t, kiln_stream, void*) {
  {
    const std::lock_guard lock(of_captures().mutex);
    if (of_captures().addresses.erase(address) == 0) {
      cuda().free(address);
      return;
    }
  }
  driver().free(reinterpret_cast<std::uint64_t>(address));
}

}  // namespace

const CudaShim& cuda() {
  static const CudaShim made = load();
  return made;
}

void share_allocator() { kiln().set_allocator(allocate, give_back); }

}  // namespace kiln_torch

// Kiln's workspaces come from torch's allocator, so that one pool serves both. A capture's do not: they outlive the pool of its graph,
// and torch.compile's graphs refuse memory in their pool that is none of their outputs.
#include <dlfcn.h>

#include <mutex>
#include <set>

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
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_LAZY);
    set(allocate, find(library, "cuMemAlloc_v2"));
    set(free, find(library, "cuMemFree_v2"));
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

void* allocate(std::size_t bytes, kiln_stream stream, std::int32_t captured, void* user) try {
  if (captured != 0) {  // Kiln has relaxed the thread's capture mode
    std::uint64_t address = 0;
    if (driver().allocate(&address, bytes) != 0) return nullptr;
    void* const made = reinterpret_cast<void*>(address);
    const std::lock_guard lock(of_captures().mutex);
    of_captures().addresses.insert(made);
    return made;
  }
  void *guard = nullptr, *address = nullptr;
  if (cuda().new_stream_guard(stream, static_cast<std::int32_t>(reinterpret_cast<std::intptr_t>(user)), &guard) != 0)
    return nullptr;
  if (cuda().allocate(bytes, &address) != 0) address = nullptr;
  cuda().delete_stream_guard(guard);
  return address;
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

#include "faults/engine/refusals.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>

#include <atomic>
#include <cerrno>

namespace kiln::faults {
namespace {

std::atomic<bool> is_on = false;
std::atomic<Refusals::Of> of;
std::atomic<int> left = 0;     // to be allowed
std::atomic<int> most = 0;     // to be refused
std::atomic<int> refused = 0;  // so far

bool refuses(Refusals::Of what) {
  if (!is_on || of != what || left.fetch_sub(1) > 0) return false;
  if (refused.fetch_add(1) < most) return true;
  --refused;
  return false;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

Refusals::Refusals(Of what, Which which, int allowed) {
  of = what;
  left = allowed;
  most = which == Which::one ? 1 : 1 << 30;
  refused = 0;
  is_on = true;
}

Refusals::~Refusals() { is_on = false; }

int Refusals::count() const noexcept { return refused; }

}  // namespace kiln::faults

// The linker finds these before the C library's. Sanitizers have theirs under the second name.
extern "C" {

[[gnu::weak]] int __interceptor_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* given) noexcept {
  using namespace kiln::faults;
  if (refuses(Refusals::Of::threads)) return EAGAIN;
  if (&__interceptor_pthread_create != nullptr) return __interceptor_pthread_create(thread, attributes, start, given);
  static auto* const create = real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return create(thread, attributes, start, given);
}

int posix_spawn(pid_t* process, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  using namespace kiln::faults;
  if (refuses(Refusals::Of::processes)) return EAGAIN;
  static auto* const spawn = real<int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                                      char* const*, char* const*)>("posix_spawn");
  return spawn(process, path, actions, attributes, arguments, environment);
}

}  // extern "C"

// An allocator whose Nth allocation fails, for LD_PRELOAD. Counts from the program's main() on.
//
//   FAILING_MALLOC   "N": allocation N fails; "N+": all from it on; "0": none, and the count is written to the standard error at exit
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" void* __libc_malloc(std::size_t bytes);  // NOLINT(bugprone-reserved-identifier): glibc's own

namespace {

std::atomic<bool> counting = false;
std::atomic<long> allocations = 0;
long fails_at = 0;
bool fails_after = false;

using Main = int (*)(int, char**, char**);
Main program_main = nullptr;

void write_count() {
  counting = false;
  char text[64];
  const int bytes = std::snprintf(text, sizeof text, "\nallocations %ld\n", allocations.load());
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, static_cast<std::size_t>(bytes));
}

int counted_main(int argc, char** argv, char** environment) {
  const char* order = std::getenv("FAILING_MALLOC");
  fails_at = order != nullptr ? std::atol(order) : 0;
  fails_after = order != nullptr && std::strchr(order, '+') != nullptr;
  if (fails_at == 0) std::atexit(write_count);
  counting = true;
  return program_main(argc, argv, environment);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void* malloc(std::size_t bytes) {
  if (counting) {
    const long number = ++allocations;
    if (fails_at > 0 && (number == fails_at || (fails_after && number > fails_at))) {
      errno = ENOMEM;
      return nullptr;
    }
  }
  return __libc_malloc(bytes);
}

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*finish)(), void (*loader_finish)(),
                      void* stack_end) {  // NOLINT(bugprone-reserved-identifier)
  program_main = main;
  const auto real = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(&counted_main, argc, argv, init, finish, loader_finish, stack_end);
}

}  // extern "C"
#pragma GCC visibility pop

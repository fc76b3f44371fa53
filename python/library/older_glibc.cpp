// For C libraries older than the one of the machine that builds the wheel: a static libstdc++ draws these functions in, and nothing calls them
// often. The library's version script hides them.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

/// Since glibc 2.36; std::random_device calls it.
extern "C" std::uint32_t arc4random() {
  std::uint32_t value = 0;
  if (getentropy(&value, sizeof value) != 0) std::abort();  // as glibc's own does
  return value;
}

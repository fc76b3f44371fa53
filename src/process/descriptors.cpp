#include "process/descriptors.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace kiln::process {

void hold_standard_descriptors() noexcept {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0) [[maybe_unused]]
      const int held = open("/", O_PATH);  // the lowest free one, which is this
}

}  // namespace kiln::process

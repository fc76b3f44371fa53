// The first Ctrl-C requests a clean end, the second ends the process.
#pragma once

namespace kiln::cli {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  [[nodiscard]] static bool requested() noexcept;
};

}  // namespace kiln::cli

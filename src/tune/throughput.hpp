// What a device can do in a second, from the facts that a device class holds: no device is asked.
#pragma once

#include "manifest/op.hpp"

namespace kiln::tune {

/// Rates are of one multiprocessor a nanosecond, unless named otherwise.
struct Throughput {
  double instructions = 0, fma = 0, mma = 0, wgmma = 0;  // as manifest::Unit counts them
  double shared_bytes = 0;
  double l2_bytes = 0;             // when all multiprocessors ask
  double l2_port_bytes = 0;        // when few do
  double device_memory_bytes = 0;  // of the whole device

  [[nodiscard]] double of(manifest::Unit unit) const noexcept;
};

/// An architecture that is not listed is taken for the nearest earlier one.
Throughput throughput_of(const manifest::DeviceFacts& device) noexcept;

}  // namespace kiln::tune

// The rates of a device, computed from its device class without a device.
#pragma once

#include "manifest/op.hpp"

namespace kiln::answer {

/// Rates per nanosecond of one multiprocessor, unless named otherwise.
struct Throughput {
  double instructions = 0, fma = 0, mma = 0, wgmma = 0;  // as manifest::Unit counts them
  double shared_bytes = 0;
  double l2_bytes = 0;             // while all multiprocessors read
  double l2_port_bytes = 0;        // while few do
  double device_memory_bytes = 0;  // of the whole device

  [[nodiscard]] double of(manifest::Unit unit) const noexcept;
};

/// An unknown architecture gets the rates of the nearest earlier one.
Throughput throughput_of(const manifest::DeviceFacts& device) noexcept;

}  // namespace kiln::answer

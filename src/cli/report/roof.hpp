// What a device could do at most, and what a record's launch reaches.
#pragma once

#include <string_view>

#include "cli/report/content.hpp"

namespace kiln::cli::report {

struct Roof {
  std::string_view device_class, name;
  double bytes_per_second = 0;  // DRAM
  std::string_view bytes_from;  // how that is known
};

/// Nothing for a device whose roof is not known.
const Roof* roof_of(std::string_view device_class) noexcept;
/// The arithmetic peak for a type, dense; 0 when it is not known.
double peak_flops(const Roof& roof, std::string_view dtype) noexcept;

/// The op's first type: "bf16". Empty when it has none.
std::string_view dtype_of(const Entry& entry);

struct Reached {
  double bytes_per_second = 0, flops_per_second = 0;  // 0 where the op does not say
  [[nodiscard]] double intensity() const noexcept {
    return bytes_per_second > 0 ? flops_per_second / bytes_per_second : 0;
  }
};
Reached reached_by(const Entry& entry);
/// The share of the roof above its intensity; 0 when it is not known.
double share_of_roof(const Entry& entry);

}  // namespace kiln::cli::report

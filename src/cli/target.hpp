// Which device a command answers for, when it need not be present.
#pragma once

#include <optional>
#include <string>

#include "cli/session.hpp"
#include "cuda/device.hpp"

namespace kiln::cli {

struct TargetChoice {
  std::string arch;          // "sm_90a"; empty: by the device
  std::string device_class;  // "sm_90/mp132/..."; empty: see choose_target
};

struct Target {
  manifest::DeviceFacts facts;
  std::string arch;
  std::string about;     // "device 0, NVIDIA H200", "the device class that the files hold", ...
  bool present = false;  // the driver sees it
};

/// In this order: the class that was named; unless an architecture was named, the GPU that is present; the only class (of that
/// architecture) that the files hold; with `sample`, the H200. Throws Error(bad_input) when the choice is not clear or does
/// not parse, and Error(no_device) when nothing is left.
Target choose_target(const Globals& globals, const TargetChoice& choice, const store::Layers& layers, bool sample);

/// The device, or nothing on a machine without a driver or a GPU. Throws Error(no_device) for an ordinal that a driver lacks.
std::optional<cuda::DeviceInfo> present_device(const Globals& globals);

inline constexpr const char* h200_device_class = "sm_90/mp132/l2_62914560/smem_232448/bus_6016";

}  // namespace kiln::cli

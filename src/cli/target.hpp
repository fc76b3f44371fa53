// The device that a command computes for, which need not be present.
#pragma once

#include <optional>
#include <string>

#include "cli/session.hpp"
#include "cuda/device.hpp"

namespace kiln::cli {

struct TargetChoice {
  std::string arch;          // "sm_90a"; empty: the device's
  std::string device_class;  // "sm_90/mp132/..."; empty: see choose_target
};

struct Target {
  manifest::DeviceFacts facts;
  std::string arch;
  std::string about;     // "device 0, NVIDIA H200", "the device class that the files hold", ...
  bool present = false;  // the driver reports it
};

/// The facts with a link between the ranks of a team, for its ops: where they have none, the fastest of those that the
/// files' records of this device class are for.
manifest::DeviceFacts with_link(manifest::DeviceFacts facts, const store::Layers& layers);

/// Chooses the named class; else, unless an architecture was named, the present GPU; else the only class (of that
/// architecture) in the files; else, with `sample`, the H200, or an assumed device of the architecture. Its facts are
/// with_link(). Throws Error(bad_input) when the choice is ambiguous or does not parse, and Error(no_device) when there
/// is none.
Target choose_target(const Globals& globals, const TargetChoice& choice, const store::Layers& layers, bool sample);

/// Returns the device, or nothing on a machine without a driver or a GPU. Throws Error(no_device) for an ordinal that
/// the driver does not have.
std::optional<cuda::DeviceInfo> present_device(const Globals& globals);

inline constexpr const char* h200_device_class = "sm_90/mp132/l2_62914560/smem_232448/bus_6016";

/// Makes a target of a device that need not be present: "A100", a device class, or an architecture such as "sm_80". For
/// commands that ask no record. Throws Error(bad_input).
Target assumed_target(const std::string& word);

/// Returns the device class that a name such as H200 or A100 stands for, in upper or lower case; any other word as it
/// is.
std::string device_class_named(const std::string& word);
/// Returns the name of such a device class; any other class as it is. --device-class takes both.
std::string class_word(const std::string& device_class);
/// What --device-class takes: "H200, H100, ..., or the class as kiln devices prints it".
std::string help_of_classes();
/// Returns a device class with its name behind it, where it has one: "sm_90/... (H100)".
std::string with_name(const std::string& device_class);

}  // namespace kiln::cli

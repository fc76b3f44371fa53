// What the environment may choose.
#pragma once

#include <string>

namespace kiln::manifest {

/// Returns the value of an environment variable, empty when it is unset. Empty too where has_raised_rights(): whoever
/// started the process chose its variables. All of Kiln reads the environment by this.
std::string environment(const char* name);
/// Whether the variable is set, be it to an empty value. False where has_raised_rights().
bool has_variable(const char* name) noexcept;

/// Whether this process has rights that its user has not, as by setuid, setgid or file capabilities (AT_SECURE).
bool has_raised_rights() noexcept;

}  // namespace kiln::manifest

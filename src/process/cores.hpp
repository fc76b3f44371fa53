// How many processors this process may use, which in a container are fewer than the machine has.
#pragma once

#include <filesystem>
#include <string_view>

namespace kiln::process {

/// Those that the calling thread may run on, at most as many as the processor time of its control group (version 2) and
/// of the groups around it suffices for. At least 1.
int usable_cores() noexcept;

/// How many processors' time a group and those around it may take, rounded up; 0 where none of them says. `membership`
/// is the text of /proc/self/cgroup, `root` where the groups are mounted.
int cores_of_groups(std::string_view membership, const std::filesystem::path& root);

}  // namespace kiln::process

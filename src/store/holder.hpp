// Describes the process that holds a lock or lease, for messages: "process 1234 (kiln), which is stopped".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace kiln::store {

/// Returns the first line of a file such as those of /proc, without its end. Empty when the file cannot be read.
std::string first_line(const std::string& path);
/// Returns when a process started, in clock ticks since boot (proc(5)). Nothing when it does not exist or is a zombie.
std::optional<std::int64_t> start_of_process(std::int64_t pid);
/// Returns a name for the holder of a lease that no other one has, also where containers give processes one number and
/// one layout of memory.
std::string unique_holder();
/// Describes a process of this pid namespace by number, name and whether it is stopped.
std::string process_in_words(std::int64_t pid);
/// Describes the other process that holds a write lock on the file, by /proc/locks. Where none is listed there, it may
/// be one of another pid namespace, or a copy of Kiln in this process, as two modules may each have one.
std::string locker_in_words(const std::filesystem::path& path);

}  // namespace kiln::store

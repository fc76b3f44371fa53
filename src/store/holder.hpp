// Who holds what others wait for, in words: "process 1234 (kiln), which is stopped".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace kiln::store {

/// When a process began, by proc(5), in clock ticks since the boot. Nothing when there is no such process, or only its remains.
std::optional<std::int64_t> start_of_process(std::int64_t pid);
/// A process of this pid namespace, with its name and whether it is stopped.
std::string process_in_words(std::int64_t pid);
/// The other process that holds a write lock of SQLite on the file, by /proc/locks; empty when none is found there.
std::string locker_in_words(const std::filesystem::path& path);

}  // namespace kiln::store

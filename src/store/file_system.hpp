// Where a file lies: SQLite's locks hold on a local file system only.
#pragma once

#include <filesystem>
#include <string_view>

namespace kiln::store {

/// The name of the network or user-space file system that a path is on, such as "NFS", judged by the nearest folder that
/// exists; empty for any other.
std::string_view remote_file_system(const std::filesystem::path& path) noexcept;

/// Where an overlay lies whose own place is remote: "/var/tmp/kiln-UID/overlay-DIGEST.kiln", one for each path. Makes the
/// folder. Throws Error when that folder is not this user's alone, or remote as well.
std::filesystem::path local_stand_in(const std::filesystem::path& overlay);

}  // namespace kiln::store

// Local and remote file systems: SQLite's locks work on local ones only.
#pragma once

#include <filesystem>
#include <string_view>

namespace kiln::store {

/// Returns the name of the network or user-space file system of a path, such as "NFS", else an empty string. For a
/// missing path, its nearest existing folder counts.
std::string_view remote_file_system(const std::filesystem::path& path) noexcept;

/// Returns the local path used instead of a remote overlay: "/var/tmp/kiln-UID/overlay-DIGEST.kiln", DIGEST of
/// `overlay`. Creates the folder. Throws Error(io) when that is remote too, and Error(no_permission) when others may
/// use it.
std::filesystem::path local_stand_in(const std::filesystem::path& overlay);

}  // namespace kiln::store

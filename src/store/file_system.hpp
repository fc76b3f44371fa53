// Local and remote file systems, since SQLite's locks work on local ones only; and full ones.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace kiln::store {

/// Returns the name of the network or user-space file system of a path, such as "NFS", else an empty string. For a
/// missing path, its nearest existing folder counts.
std::string_view remote_file_system(const std::filesystem::path& path) noexcept;

/// Returns the local path used instead of a remote overlay: "/var/tmp/kiln-UID/overlay-DIGEST.kiln", DIGEST of
/// `overlay`. Creates the folder. Throws Error(io) when that is remote too, and Error(no_permission) when others may
/// use it.
std::filesystem::path local_stand_in(const std::filesystem::path& overlay);

/// Returns the text of errno `error` of a file that could not be made in a folder; what is full, where something is. A
/// file system without inodes gives the error of a full disk.
std::string error_in_words(int error, const std::filesystem::path& folder);
/// Returns what is full on the file system of a folder, so that no file can be made there, or an empty string.
std::string full_in_words(const std::filesystem::path& folder);

}  // namespace kiln::store

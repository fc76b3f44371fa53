// Whose files may decide what Kiln runs, loads or believes.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace kiln::manifest {

/// Returns why a file or folder, `what` in words, is not trusted, or an empty string: it belongs to another user than
/// root, this one and `owner`, or others may write it. Where has_raised_rights() and they are not those of another
/// user, the user who started the process counts as another.
std::string ownership_objection(std::string_view what, const std::filesystem::path& path, const struct stat& status,
                                uid_t owner = 0);

/// Returns why a program is not run, or an empty string: it, the folder where it was found or the one that a link leads
/// to are not trusted.
std::string program_objection(const std::filesystem::path& program, uid_t owner);

}  // namespace kiln::manifest

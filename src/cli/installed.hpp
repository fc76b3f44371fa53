// The files that are installed with the command.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kiln::cli {

/// share/kiln of the folder that holds the running command's folder.
std::filesystem::path installed_data();

/// `name` as it stands; or, where it is a bare name and no such file is here, the file of that name in `folder` of
/// installed_data(), if there is one. "h200.kiln" is then "/usr/share/kiln/h200.kiln".
std::string or_installed(const std::string& name, const std::filesystem::path& folder = {});

/// Names of the .kiln files in installed_data(), sorted.
std::vector<std::string> installed_records();

}  // namespace kiln::cli

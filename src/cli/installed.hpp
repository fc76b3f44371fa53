// The files that are installed with the command.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kiln::cli {

/// share/kiln beside the running command, as the Python package has it; without one there, that of the folder above, as
/// `cmake --install` makes it.
std::filesystem::path installed_data();

/// `name` as it stands; or, where it is a bare name and no such file is here, the file of that name in `folder` of
/// installed_data(), if there is one. "h200.kiln" is then "/usr/share/kiln/h200.kiln".
std::string or_installed(const std::string& name, const std::filesystem::path& folder = {});
/// For the message of a bare name that is no file here: "; there is cache/workloads/llm.toml", the file of this name,
/// or of it with an ending, in a checkout's folders or installed. Else empty.
std::string where_else(const std::string& name);
/// Throws Error(bad_input) with where_else() for a file that does not exist.
void refuse_absent(const std::string& name);

/// Names of the .kiln files in installed_data(), sorted.
std::vector<std::string> installed_records();

}  // namespace kiln::cli

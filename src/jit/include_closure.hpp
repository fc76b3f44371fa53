// The files of one compile and where the compiler may find those that are not handed to it. Private to the room.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "jit/specialisation.hpp"

namespace kiln::jit {

struct Closure {
  std::vector<spec::SourceFile> given;    // handed to the compiler in memory; the entry comes first
  std::vector<spec::SourceFile> toolkit;  // which the compiler reads from include_directories; "<name>"
  std::vector<std::filesystem::path> include_directories;  // of the toolkit; empty without toolkit_headers
};

/// See include_closure(), which joins the two lists.
Closure find_closure(const Specialisation& specialisation);

/// A file of the op as messages name it: "templates/rms_norm/rms_norm.cuh"; a common/ header by its own name.
std::string shown_name(const Specialisation& specialisation, const std::string& file);

}  // namespace kiln::jit

// Small sound files, made when the target starts: the corpus need not hold them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kiln::fuzz {

inline constexpr std::size_t template_page_size = 512;  // SQLite's smallest: whole files of a few KiB

/// An overlay with rows, an exported file with its manifest, and an empty file.
const std::vector<std::string>& file_templates();

}  // namespace kiln::fuzz

// Parts of manifests, whose entries several implementations include.
#pragma once

#include <span>
#include <string_view>

#include "manifest/manifest_reader.hpp"
#include "manifest/sources.hpp"

namespace kiln::manifest {

inline constexpr std::string_view part_suffix = ".part.toml";
/// Whether a file of this name is a part, and no implementation.
[[nodiscard]] inline bool is_part(std::string_view file) noexcept { return file.ends_with(part_suffix); }

/// Reads an implementation's manifest, with the entries of the parts that it includes in place of `include`. A part is
/// one of `files` or of common_parts(). Its entries come first in each table, and keep their lines. Adds the parts to
/// the reader. Throws Error(bad_manifest).
TomlValue read_with_parts(ManifestReader& reader, std::string_view text, std::span<const SourceFile> files,
                          const Op& op);

}  // namespace kiln::manifest

// The files under templates/, which the build embeds in the library.
#pragma once

#include <span>
#include <string_view>

namespace kiln::manifest {

struct EmbeddedFile {
  std::string_view path;  // relative to templates/, such as "rms_norm/op.toml"
  std::string_view text;  // followed by a zero byte
};
std::span<const EmbeddedFile> embedded_files() noexcept;

}  // namespace kiln::manifest

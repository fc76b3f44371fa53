// zstd frames of known size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kiln::store {

/// Returns one frame that states its content's size. Throws Error(bad_input) for an image larger than max_image_bytes,
/// and Error(io) when zstd fails.
std::vector<std::byte> compress(std::span<const std::byte> image);

/// Returns nothing unless `frame` is one valid frame of exactly `bytes` bytes. Allocates at most max_image_bytes.
std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> frame, std::int64_t bytes);

}  // namespace kiln::store

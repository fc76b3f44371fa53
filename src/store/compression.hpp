// zstd frames of known size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kiln::store {

/// One frame that states its content's size. Throws Error(bad_input) past max_image_bytes.
std::vector<std::byte> compress(std::span<const std::byte> image);

/// Nothing unless `frame` is one frame of exactly `bytes` bytes; never allocates more than max_image_bytes.
std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> frame, std::int64_t bytes);

}  // namespace kiln::store

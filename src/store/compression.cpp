#include "store/compression.hpp"

#include <fmt/core.h>
#include <zstd.h>

#include "kiln/error.hpp"
#include "store/limits.hpp"

namespace kiln::store {
namespace {

// Level 9 compresses cubins to within 3 % of level 19's size in a tenth of its time.
constexpr int level = 9;

}  // namespace

std::vector<std::byte> compress(std::span<const std::byte> image) {
  if (image.size() > static_cast<std::size_t>(max_image_bytes)) {
    throw Error(ErrorKind::bad_input, fmt::format("a cubin of {} bytes cannot be stored: the limit is {}; "
                                                  "compile fewer specialisations into one program",
                                                  image.size(), max_image_bytes));
  }
  std::vector<std::byte> frame(ZSTD_compressBound(image.size()));
  const std::size_t size = ZSTD_compress(frame.data(), frame.size(), image.data(), image.size(), level);
  if (ZSTD_isError(size) != 0)
    throw Error(ErrorKind::io, fmt::format("zstd could not compress a cubin: {}", ZSTD_getErrorName(size)));
  frame.resize(size);
  return frame;
}

std::optional<std::vector<std::byte>> decompress(std::span<const std::byte> frame, std::int64_t bytes) {
  if (bytes < 0 || bytes > max_image_bytes) return std::nullopt;
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != static_cast<unsigned long long>(bytes))
    return std::nullopt;
  std::vector<std::byte> image(static_cast<std::size_t>(bytes));
  const std::size_t size = ZSTD_decompress(image.data(), image.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) != 0 || size != image.size()) return std::nullopt;
  return image;
}

}  // namespace kiln::store

// Digests of keys and of sources.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "manifest/site.hpp"

namespace kiln::manifest {

using Digest = std::array<std::byte, 32>;
std::string to_hex(const Digest& digest);

/// SHA-256 over fields, each preceded by its length as 8 little-endian bytes, so that different lists of fields give
/// different input.
class Hasher {
 public:
  Hasher();  // a copy continues from the same state
  Hasher& field(std::string_view text);
  Hasher& field(std::span<const std::byte> bytes);
  Hasher& field(std::int64_t number);
  Digest finish();

 private:
  struct State {  // holds OpenSSL's state, whose type this header does not include
    alignas(8) std::array<std::byte, 112> bytes;
  };
  State state_ = {};
};

}  // namespace kiln::manifest

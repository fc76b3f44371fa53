// Algorithms of cuBLASLt's, as configs: integers that a record keeps, from which any process makes the same algorithm again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/library_product.hpp"

namespace kiln::jit {

/// The attributes of an algorithm, in the order of the manifest's parameters for the library.
manifest::Config config_of(const cuda::CublasLt& library, const CublasLtMatmulAlgo& algorithm);
/// The algorithm of these attributes; nothing when the library has none such.
std::optional<CublasLtMatmulAlgo> algorithm_of(const LibraryProduct& product, std::span<const std::int64_t> config);

/// What the library's heuristic proposes at the sizes of `frame`, its favourite first; none for a product that it cannot do.
std::vector<CublasLtMatmulAlgo> propose(const LibraryProduct& product, const manifest::Op& op,
                                        const manifest::Implementation& implementation,
                                        std::span<const std::int64_t> frame, std::size_t at_most);

/// An algorithm that was looked at: the workspace that it needs at the sizes of a frame, with a bias and without, or why the library
/// does not take it there.
struct Checked {
  CublasLtMatmulAlgo algorithm{};
  std::size_t workspace_bytes = 0;
  std::string why_not;
};
Checked check_config(const LibraryProduct& product, const manifest::Implementation& implementation,
                     std::span<const std::int64_t> frame, std::span<const std::int64_t> config);

}  // namespace kiln::jit

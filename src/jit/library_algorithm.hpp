// Algorithms of cuBLASLt as configs: integers from which any process makes the same algorithm again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/library_product.hpp"

namespace kiln::jit {

/// Returns the attributes of an algorithm, in the order of the manifest's parameters for the library.
manifest::Config config_of(const cuda::CublasLt& library, const CublasLtMatmulAlgo& algorithm);
/// Returns the algorithm with these attributes, or nothing when the library has none.
std::optional<CublasLtMatmulAlgo> algorithm_of(const LibraryProduct& product, std::span<const std::int64_t> config);

/// Returns the proposals of the library's heuristic at the sizes of `frame`, best first. Empty for a product that it
/// cannot compute.
std::vector<CublasLtMatmulAlgo> propose(const LibraryProduct& product, const manifest::Op& op,
                                        const manifest::Implementation& implementation,
                                        std::span<const std::int64_t> frame, std::size_t at_most);

/// The library's check of an algorithm at the sizes of a frame, with a bias and without: the workspace that it needs,
/// or why it is refused.
struct Checked {
  CublasLtMatmulAlgo algorithm{};
  std::size_t workspace_bytes = 0;
  std::string why_not;  // empty: the library takes it
};
Checked check_config(const LibraryProduct& product, const manifest::Implementation& implementation,
                     std::span<const std::int64_t> frame, std::span<const std::int64_t> config);

}  // namespace kiln::jit

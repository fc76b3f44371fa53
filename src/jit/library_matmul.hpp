// The launch of an implementation by cuBLASLt: one of its algorithms, named by a config.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/library.hpp"
#include "jit/library_product.hpp"

namespace kiln::jit {

/// library_candidates() and why_library_refuses() of cuBLASLt, which is here.
std::vector<manifest::Config> matmul_candidates(const manifest::Op& op, const manifest::Implementation& implementation,
                                                std::span<const std::int64_t> frame, std::size_t at_most);
std::optional<std::string> why_matmul_refuses(const manifest::Op& op, const manifest::Implementation& implementation,
                                              std::span<const std::int64_t> frame);

class LibraryMatmul final : public LibraryCall {
 public:
  /// For the current context. Makes the library load the config's kernels, so that a later capture need not. Throws
  /// Error(no_cublaslt), Error(out_of_memory), or Error(driver_failed) for a config that the library refuses.
  LibraryMatmul(const manifest::Op& op, const manifest::Implementation& implementation,
                std::span<const std::int64_t> frame);

  [[nodiscard]] CUresult launch(const LaunchInput& input) const noexcept override;
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept override { return workspace_bytes_; }

 private:
  void load(std::span<const std::int64_t> frame) const;

  LibraryProduct product_;
  CUcontext context_;
  CublasLtMatmulAlgo algorithm_;
  std::int64_t workspace_bytes_;
};

}  // namespace kiln::jit

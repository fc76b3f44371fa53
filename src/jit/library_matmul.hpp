// The launch of an implementation by cuBLASLt: one of its algorithms, named by a config.
#pragma once

#include <atomic>
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
  /// For the current context. Throws Error(no_cublaslt), or Error(driver_failed) for a config that the library refuses.
  LibraryMatmul(const manifest::Op& op, const manifest::Implementation& implementation,
                std::span<const std::int64_t> frame);

  [[nodiscard]] CUresult launch(const LaunchInput& input) const noexcept override;
  void load() const noexcept override;
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept override { return workspace_bytes_; }

 private:
  void capture_once() const;

  LibraryProduct product_;
  CUcontext context_;
  CublasLtMatmulAlgo algorithm_;
  std::int64_t workspace_bytes_;
  std::vector<std::int64_t> frame_;  // of the sizes that it was made for
  mutable std::atomic<bool> is_loaded_{false};
};

}  // namespace kiln::jit

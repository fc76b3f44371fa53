// The launch of an implementation with `library`: one algorithm of cuBLASLt, named by a config.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/launch_form.hpp"
#include "jit/library_product.hpp"

namespace kiln::jit {

/// Returns "cublaslt 13.1.0", or an empty string when the library is missing. Opens the library. Algorithms belong to a version.
std::string library_identity(const std::string& library);

/// Returns the configs that the library proposes for the sizes of `frame` (manifest::make_frame), best first. Empty without the library.
/// Precondition: a context is current.
std::vector<manifest::Config> library_candidates(const manifest::Op& op, const manifest::Implementation& implementation,
                                                 std::span<const std::int64_t> frame, std::size_t at_most);

/// Returns why the library cannot run the config of `frame` at its sizes, or nothing when it can. Returns nothing without a current context.
std::optional<std::string> why_library_refuses(const manifest::Op& op, const manifest::Implementation& implementation,
                                               std::span<const std::int64_t> frame);

class LibraryMatmul {
 public:
  /// For the current context. Makes the library load the config's kernels, so that a later capture need not. Throws Error(no_cublaslt),
  /// Error(out_of_memory), or Error(driver_failed) for a config that the library refuses.
  LibraryMatmul(const manifest::Op& op, const manifest::Implementation& implementation,
                std::span<const std::int64_t> frame);

  /// Returns CUDA_ERROR_NOT_SUPPORTED at sizes that the config does not take, and CUDA_ERROR_INVALID_CONTEXT when the current context is
  /// not the constructor's. Launches nothing in either case.
  [[nodiscard]] CUresult launch(const LaunchInput& input) const noexcept;
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept {
    return workspace_bytes_;
  }  // at the constructor's sizes

 private:
  void load(std::span<const std::int64_t> frame) const;

  LibraryProduct product_;
  CUcontext context_;
  CublasLtMatmulAlgo algorithm_;
  std::int64_t workspace_bytes_;
};

}  // namespace kiln::jit

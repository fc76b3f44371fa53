// What a plan of an implementation with `library` launches in place of kernels: one algorithm of cuBLASLt's, named by a config.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/launch_form.hpp"
#include "jit/library_product.hpp"

namespace kiln::jit {

/// "cublaslt 13.1.0": algorithms are its own, so that another version may know other ones. Empty when the library is not here. Opens it.
std::string library_identity(const std::string& library);

/// The configs that the library proposes for the sizes of `frame` (manifest::make_frame), its favourite first; none without the library. A
/// context must be current.
std::vector<manifest::Config> library_candidates(const manifest::Op& op, const manifest::Implementation& implementation,
                                                 std::span<const std::int64_t> frame, std::size_t at_most);

/// Why the library cannot run the config of `frame` at its sizes. Nothing when it can; nothing either where no context is current, so that
/// there is no device to ask about.
std::optional<std::string> why_library_refuses(const manifest::Op& op, const manifest::Implementation& implementation,
                                               std::span<const std::int64_t> frame);

class LibraryMatmul {
 public:
  /// For the current context. Has the library load what the config runs, so that a capture finds it loaded. Throws Error(no_cublaslt),
  /// Error(out_of_memory), Error(driver_failed) for a config that the library refuses.
  LibraryMatmul(const manifest::Op& op, const manifest::Implementation& implementation,
                std::span<const std::int64_t> frame);

  /// CUDA_ERROR_NOT_SUPPORTED, and nothing is launched, at sizes that the config does not take; CUDA_ERROR_INVALID_CONTEXT on a thread
  /// whose current context is not the one that this was made for.
  [[nodiscard]] CUresult launch(const LaunchInput& input) const noexcept;
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept { return workspace_bytes_; }  // at the sizes of the frame

 private:
  void load(std::span<const std::int64_t> frame) const;

  LibraryProduct product_;
  CUcontext context_;
  CublasLtMatmulAlgo algorithm_;
  std::int64_t workspace_bytes_;
};

}  // namespace kiln::jit

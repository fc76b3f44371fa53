#include "jit/library_matmul.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/device.hpp"
#include "jit/library_algorithm.hpp"
#include "kiln/error.hpp"
#include "manifest/variant.hpp"

namespace kiln::jit {
namespace {

constexpr std::int64_t least_buffer = 256;

std::span<const std::int64_t> config_in(const manifest::Op& op, const manifest::Implementation& implementation,
                                        std::span<const std::int64_t> frame) {
  return frame.subspan(static_cast<std::size_t>(op.first_parameter()), implementation.parameters.size());
}

CUcontext current_context() {
  CUcontext context = nullptr;
  if (const cuda::Driver* driver = cuda::Driver::find()) driver->cuCtxGetCurrent(&context);
  return context;
}

CUresult as_driver_result(cublasStatus_t status) noexcept {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return CUDA_SUCCESS;
    case CUBLAS_STATUS_INVALID_VALUE:  // the workspace is too small, among other things
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED: return CUDA_ERROR_NOT_SUPPORTED;
    case CUBLAS_STATUS_ALLOC_FAILED: return CUDA_ERROR_OUT_OF_MEMORY;
    case CUBLAS_STATUS_EXECUTION_FAILED: return CUDA_ERROR_LAUNCH_FAILED;
    default: return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace

std::vector<manifest::Config> matmul_candidates(const manifest::Op& op, const manifest::Implementation& implementation,
                                                std::span<const std::int64_t> frame, std::size_t at_most) {
  std::vector<manifest::Config> configs;
  try {
    const LibraryProduct product(op, implementation, frame);
    for (const CublasLtMatmulAlgo& each : propose(product, op, implementation, frame, at_most)) {
      manifest::Config config = config_of(product.library(), each);
      if (std::ranges::find(configs, config) == configs.end() &&
          check_config(product, implementation, frame, config).why_not.empty())
        configs.push_back(std::move(config));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_cublaslt) throw;
  }
  return configs;
}

std::optional<std::string> why_matmul_refuses(const manifest::Op& op, const manifest::Implementation& implementation,
                                              std::span<const std::int64_t> frame) {
  try {
    const LibraryProduct product(op, implementation, frame);
    const Checked checked = check_config(product, implementation, frame, config_in(op, implementation, frame));
    if (checked.why_not.empty()) return std::nullopt;
    return fmt::format("{}: {}", library_identity(implementation.library), checked.why_not);
  } catch (const Error& error) {
    return error.what();
  }
}

LibraryMatmul::LibraryMatmul(const manifest::Op& op, const manifest::Implementation& implementation,
                             std::span<const std::int64_t> frame)
    : product_(op, implementation, frame), context_(current_context()), frame_(frame.begin(), frame.end()) {
  const auto config = config_in(op, implementation, frame);
  const Checked checked = check_config(product_, implementation, frame, config);
  if (!checked.why_not.empty())
    throw Error(ErrorKind::driver_failed, fmt::format("{} {}: {}", library_identity(implementation.library),
                                                      manifest::to_string(implementation, config), checked.why_not));
  algorithm_ = checked.algorithm;
  workspace_bytes_ = static_cast<std::int64_t>(checked.workspace_bytes);
}

/// Each algorithm's kernels take cuBLASLt milliseconds. Where this fails, the library loads them in its next call.
void LibraryMatmul::load() const noexcept {
  if (is_loaded_.load(std::memory_order_acquire)) return;
  const cuda::RelaxedCapture relaxed;
  try {
    capture_once();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory
  }
  is_loaded_.store(true, std::memory_order_release);
}

/// Captures the product into a graph that is never launched: the library loads kernels lazily, which a capture may
/// forbid. Capturing reads and writes no element, so any device address serves.
void LibraryMatmul::capture_once() const {
  const cuda::Driver& driver = cuda::Driver::get();
  const cuda::Buffer somewhere(least_buffer + workspace_bytes_);
  const cuda::Stream stream;
  auto* const address = reinterpret_cast<void*>(somewhere.pointer());
  LibraryProduct::Layouts layouts{};
  if (!product_.lay_out(frame_, layouts)) return;
  if (driver.cuStreamBeginCapture_v2(stream.handle(), CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS) return;
  for (const bool biased : {false, true})
    if (!biased || product_.has_bias())
      static_cast<void>(product_.multiply(layouts, product_.all_at(address, biased), algorithm_,
                                          static_cast<std::size_t>(workspace_bytes_), stream.handle()));
  CUgraph graph = nullptr;
  if (driver.cuStreamEndCapture(stream.handle(), &graph) == CUDA_SUCCESS) driver.cuGraphDestroy(graph);
}

CUresult LibraryMatmul::launch(const LaunchInput& input) const noexcept {
  // Without a current context the library would create one.
  if (current_context() != context_) return CUDA_ERROR_INVALID_CONTEXT;
  load();
  LibraryProduct::Layouts layouts;
  if (!product_.lay_out(input.frame.view(), layouts)) return CUDA_ERROR_NOT_SUPPORTED;
  const auto operands =
      product_.operands(input.arguments, input.frame.view(), reinterpret_cast<void*>(input.workspace.scratch));
  return as_driver_result(
      product_.multiply(layouts, operands, algorithm_, static_cast<std::size_t>(workspace_bytes_), input.stream));
}

}  // namespace kiln::jit

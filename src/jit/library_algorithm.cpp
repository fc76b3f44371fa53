#include "jit/library_algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace kiln::jit {
namespace {

/// An attribute of an algorithm. A config holds their values in this order.
struct Attribute {
  cublasLtMatmulAlgoConfigAttributes_t id;
  std::size_t bytes;
};
constexpr std::array<Attribute, 10> attributes = {{{CUBLASLT_ALGO_CONFIG_ID, 4},
                                                   {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
                                                   {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
                                                   {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
                                                   {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
                                                   {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
                                                   {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
                                                   {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
                                                   {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
                                                   {CUBLASLT_ALGO_CONFIG_UNNAMED, 2}}};

// The reduction schemes that do not round partial sums to the output's type.
constexpr std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

/// Returns 0 for an attribute that an older library does not know.
std::int64_t value_of(const cuda::CublasLt& library, const CublasLtMatmulAlgo& algorithm, const Attribute& attribute) {
  std::uint32_t value = 0;  // little-endian: two-byte attributes fill the lower half
  std::size_t written = 0;
  const auto status =
      library.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute.id, &value, attribute.bytes, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : 0;
}

std::int64_t most_workspace(const manifest::Implementation& implementation, std::span<const std::int64_t> frame) {
  return std::max<std::int64_t>(0, implementation.matmul.workspace.evaluate(frame).number);
}

/// Returns the alignment in bytes that every address of the tensor has.
std::uint32_t alignment_of(const manifest::Op& op, const manifest::Implementation& implementation, int tensor,
                           std::span<const std::int64_t> frame) {
  std::int64_t bytes = size_of(op.dtype_of(op.tensors[static_cast<std::size_t>(tensor)], frame));
  for (const auto& [of, expression] : implementation.alignment)
    if (of == tensor) bytes = std::max(bytes, expression.evaluate(frame).number);
  return static_cast<std::uint32_t>(bytes);
}

CublasLtMatmulPreference preference_of(const cuda::CublasLt& library, const manifest::Op& op,
                                       const manifest::Implementation& implementation,
                                       std::span<const std::int64_t> frame) {
  CublasLtMatmulPreference preference{};
  library.cublasLtMatmulPreferenceInit_internal(&preference, sizeof preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    library.cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value);
  };
  const manifest::Matmul& matmul = implementation.matmul;
  const std::uint32_t d = alignment_of(op, implementation, matmul.d, frame);
  const std::uint32_t c = matmul.c < 0 ? d : alignment_of(op, implementation, matmul.c, frame);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(most_workspace(implementation, frame)));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(op, implementation, matmul.b, frame));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(op, implementation, matmul.a, frame));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::min(c, d));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d);
  return preference;
}

}  // namespace

manifest::Config config_of(const cuda::CublasLt& library, const CublasLtMatmulAlgo& algorithm) {
  manifest::Config config;
  for (const Attribute& each : attributes) config.push_back(value_of(library, algorithm, each));
  return config;
}

std::optional<CublasLtMatmulAlgo> algorithm_of(const LibraryProduct& product, std::span<const std::int64_t> config) {
  const cuda::CublasLt& library = product.library();
  if (config.front() < 0 || config.front() > std::numeric_limits<int>::max()) return std::nullopt;
  CublasLtMatmulAlgo algorithm{};
  const auto [a, b, c, d] = product.types();
  if (library.cublasLtMatmulAlgoInit(product.handle(), CUBLAS_COMPUTE_32F, CUDA_R_32F, a, b, c, d,
                                     static_cast<int>(config.front()), &algorithm) != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  for (std::size_t i = 1; i < attributes.size(); ++i) {
    const std::int64_t most = attributes[i].bytes == 2 ? std::numeric_limits<std::uint16_t>::max()
                                                       : std::numeric_limits<std::uint32_t>::max();
    if (config[i] < 0 || config[i] > most) return std::nullopt;
    if (value_of(library, algorithm, attributes[i]) == config[i]) continue;
    const auto value = static_cast<std::uint32_t>(config[i]);
    if (library.cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attributes[i].id, &value, attributes[i].bytes) !=
        CUBLAS_STATUS_SUCCESS)
      return std::nullopt;
  }
  return algorithm;
}

std::vector<CublasLtMatmulAlgo> propose(const LibraryProduct& product, const manifest::Op& op,
                                        const manifest::Implementation& implementation,
                                        std::span<const std::int64_t> frame, std::size_t at_most) {
  LibraryProduct::Layouts at{};
  if (!product.lay_out(frame, at)) return {};
  CublasLtMatmulDesc description = product.description();
  CublasLtMatmulPreference preference = preference_of(product.library(), op, implementation, frame);
  std::vector<CublasLtMatmulHeuristicResult> results(at_most);
  int found = 0;
  const cublasStatus_t status =
      product.library().cublasLtMatmulAlgoGetHeuristic(product.handle(), &description, &at.b, &at.a, &at.c, &at.d,
                                                       &preference, static_cast<int>(at_most), results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  results.resize(static_cast<std::size_t>(std::clamp(found, 0, static_cast<int>(at_most))));
  std::vector<CublasLtMatmulAlgo> algorithms;
  for (const CublasLtMatmulHeuristicResult& each : results)
    if (each.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(each.algo);
  return algorithms;
}

Checked check_config(const LibraryProduct& product, const manifest::Implementation& implementation,
                     std::span<const std::int64_t> frame, std::span<const std::int64_t> config) {
  Checked checked;
  LibraryProduct::Layouts at{};
  const auto algorithm = algorithm_of(product, config);
  if (!algorithm || !product.lay_out(frame, at)) {
    checked.why_not = "it has no such algorithm";
    return checked;
  }
  checked.algorithm = *algorithm;
  for (CublasLtMatmulDesc each : {product.description(), product.description_without_bias()}) {
    CublasLtMatmulHeuristicResult result{};
    const auto status = product.library().cublasLtMatmulAlgoCheck(product.handle(), &each, &at.b, &at.a, &at.c, &at.d,
                                                                  &checked.algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS) checked.why_not = "it refuses the algorithm here: " + cuda::describe(status);
    checked.workspace_bytes = std::max(checked.workspace_bytes, result.workspace_bytes);
  }
  const std::int64_t most = most_workspace(implementation, frame);
  if (checked.why_not.empty() && checked.workspace_bytes > static_cast<std::size_t>(most))
    checked.why_not =
        fmt::format("the algorithm needs {} bytes of workspace, more than {}", checked.workspace_bytes, most);
  return checked;
}

}  // namespace kiln::jit

#include "jit/library.hpp"

#include <fmt/format.h>

#include "cuda/cublaslt_api.hpp"
#include "cuda/driver_api.hpp"
#include "cuda/nccl_api.hpp"
#include "jit/library_collective.hpp"
#include "jit/library_matmul.hpp"

namespace kiln::jit {
namespace {

bool has_current_context() {
  CUcontext context = nullptr;
  if (const cuda::Driver* driver = cuda::Driver::find()) driver->cuCtxGetCurrent(&context);
  return context != nullptr;
}

}  // namespace

std::string library_identity(const std::string& library) {
  const auto identity = [&](const auto* table) {
    return table != nullptr ? library + " " + table->version : std::string();
  };
  return library == "nccl" ? identity(cuda::Nccl::find()) : identity(cuda::CublasLt::find());
}

std::vector<manifest::Config> library_candidates(const manifest::Op& op, const manifest::Implementation& implementation,
                                                 std::span<const std::int64_t> frame, std::size_t at_most) {
  if (library_identity(implementation.library).empty()) return {};
  if (implementation.is_collective()) return {implementation.default_config};
  return matmul_candidates(op, implementation, frame, at_most);
}

std::optional<std::string> why_library_refuses(const manifest::Site& site, const manifest::Variant& variant,
                                               const Problem& at) {
  const manifest::Implementation& implementation = *variant.implementation;
  if (!implementation.is_library() || !has_current_context()) return std::nullopt;
  if (library_identity(implementation.library).empty())
    return fmt::format("the library {} is not here", implementation.library);
  return implementation.is_collective() ? std::nullopt
                                        : why_matmul_refuses(*site.op, implementation, variant.frame(site, at));
}

std::unique_ptr<LibraryCall> make_library_call(const manifest::Op& op, const manifest::Implementation& implementation,
                                               std::span<const std::int64_t> frame,
                                               std::span<const LoadedWorkspace> workspaces,
                                               const team::TeamBinding* team) {
  if (implementation.is_collective())
    return std::make_unique<LibraryCollective>(op, implementation, frame, workspaces, *team);
  return std::make_unique<LibraryMatmul>(op, implementation, frame);
}

}  // namespace kiln::jit

#include "jit/library_collective.hpp"

#include <fmt/format.h>

#include "cuda/driver_api.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

const team::NcclCommunicator& communicator_of(const manifest::Op& op, const team::TeamBinding& team) {
  if (team.nccl == nullptr)
    throw Error(ErrorKind::no_nccl, op.name + " is asked of NCCL, of which the team has no communicator");
  return *team.nccl;
}

ncclDataType_t sum_type(const manifest::Op& op, manifest::DType type) {
  switch (type) {
    case manifest::DType::bf16: return ncclBfloat16;
    case manifest::DType::f16: return ncclFloat16;
    case manifest::DType::f32: return ncclFloat32;
    case manifest::DType::f64: return ncclFloat64;
    case manifest::DType::i8: return ncclInt8;
    case manifest::DType::u8: return ncclUint8;
    case manifest::DType::i32: return ncclInt32;
    case manifest::DType::i64: return ncclInt64;
    default:
      throw Error(ErrorKind::bad_manifest,
                  fmt::format("{}: NCCL adds no {}; 'requires' must leave this out", op.name, to_string(type)));
  }
}

CUcontext context_now() {
  CUcontext context = nullptr;
  cuda::Driver::get().cuCtxGetCurrent(&context);
  return context;
}

/// Throws unless each workspace holds what NCCL takes or gives at these sizes: at the other end of a part for each rank
/// are `world` parts.
void require_room(const manifest::Op& op, const manifest::Implementation& implementation,
                  std::span<const std::int64_t> frame, std::span<const LoadedWorkspace> workspaces) {
  const manifest::Collective& of = implementation.collective;
  const manifest::Value count = of.count.evaluate(frame);
  const std::int64_t world = frame[static_cast<std::size_t>(op.team_axis())];
  const std::int64_t bytes = count.number * size_of(op.dtype_of(of.element, frame));
  const auto check = [&](int index, manifest::CollectiveKind with_all_parts) {
    if (index < 0) return;
    const LoadedWorkspace& workspace = workspaces[static_cast<std::size_t>(index)];
    const std::int64_t needed = of.kind == with_all_parts ? world * bytes : bytes;
    if (count.ok() && needed <= workspace.bytes) return;
    throw Error(ErrorKind::bad_manifest,
                fmt::format("{}: workspace {} has {} bytes, and [collective] needs {} at count = {}",
                            implementation.file, workspace.name, workspace.bytes, needed, of.count.text()));
  };
  check(of.input.workspace, manifest::CollectiveKind::reduce_scatter);
  check(of.output.workspace, manifest::CollectiveKind::all_gather);
}

CUresult as_driver_result(ncclResult_t result) noexcept {
  switch (result) {
    case ncclSuccess: return CUDA_SUCCESS;
    case ncclUnhandledCudaError: return CUDA_ERROR_LAUNCH_FAILED;
    case ncclInvalidArgument: return CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_UNKNOWN;  // an ended communicator, among others
  }
}

}  // namespace

CUdeviceptr LibraryCollective::Place::in(const LaunchInput& input) const noexcept {
  if (tensor >= 0)
    if (const void* given = input.arguments.tensors[static_cast<std::size_t>(tensor)])
      return reinterpret_cast<CUdeviceptr>(given);
  return (zeroed ? input.workspace.zeroed : input.workspace.scratch) + static_cast<CUdeviceptr>(offset);
}

LibraryCollective::Place LibraryCollective::place_of(const manifest::Collective::Place& of,
                                                     std::span<const LoadedWorkspace> workspaces) {
  if (of.workspace < 0) return {of.tensor, false, 0};
  const LoadedWorkspace& workspace = workspaces[static_cast<std::size_t>(of.workspace)];
  return {of.tensor, workspace.zeroed, workspace.offset};
}

LibraryCollective::LibraryCollective(const manifest::Op& op, const manifest::Implementation& implementation,
                                     std::span<const std::int64_t> frame, std::span<const LoadedWorkspace> workspaces,
                                     const team::TeamBinding& team)
    : communicator_(communicator_of(op, team)),
      context_(context_now()),
      kind_(implementation.collective.kind),
      first_(implementation.collective.first),
      input_(place_of(implementation.collective.input, workspaces)),
      output_(place_of(implementation.collective.output, workspaces)),
      count_(implementation.collective.count.specialise(frame, op.first_static())) {
  require_room(op, implementation, frame, workspaces);
  const manifest::DType type = op.dtype_of(implementation.collective.element, frame);
  const bool is_moved = kind_ == manifest::CollectiveKind::all_gather;  // any type, as bytes
  units_an_element_ = is_moved ? size_of(type) : 1;
  type_ = is_moved ? ncclUint8 : sum_type(op, type);
}

CUresult LibraryCollective::launch(const LaunchInput& input) const noexcept {
  // The runtime would make NCCL's launches in the context that is current.
  CUcontext current = nullptr;
  if (cuda::Driver::find()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context_)
    return CUDA_ERROR_INVALID_CONTEXT;
  std::int64_t elements = 0;
  if (!count_.evaluate(input.frame.view(), elements) || elements < 0) return CUDA_ERROR_NOT_SUPPORTED;
  const auto count = static_cast<std::size_t>(elements * units_an_element_);
  const auto* const source = reinterpret_cast<const void*>(input_.in(input));
  auto* const destination = reinterpret_cast<void*>(output_.in(input));
  return as_driver_result(communicator_.enqueue([&](const cuda::Nccl& nccl, ncclComm_t handle) {
    switch (kind_) {
      case manifest::CollectiveKind::all_gather:
        return nccl.ncclAllGather(source, destination, count, type_, handle, input.stream);
      case manifest::CollectiveKind::reduce_scatter:
        return nccl.ncclReduceScatter(source, destination, count, type_, ncclSum, handle, input.stream);
      default: return nccl.ncclAllReduce(source, destination, count, type_, ncclSum, handle, input.stream);
    }
  }));
}

}  // namespace kiln::jit

#include "jit/executable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/device.hpp"
#include "jit/parameters.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

std::int64_t constant_of(const manifest::Expression& expression, std::span<const std::int64_t> frame,
                         std::string_view what) {
  const manifest::Value value = expression.evaluate(frame);
  if (value.ok()) return value.number;
  throw Error(ErrorKind::bad_manifest,
              fmt::format("{} = {} cannot be computed: {}", what, expression.text(), to_string(value.status)));
}

unsigned dimension_of(const manifest::Expression& expression, std::span<const std::int64_t> frame,
                      std::string_view what) {
  const std::int64_t value = constant_of(expression, frame, what);
  if (value >= 1 && value <= std::numeric_limits<int>::max()) return static_cast<unsigned>(value);
  throw Error(ErrorKind::bad_manifest,
              fmt::format("{} = {} is {}; a launch needs 1 or more", what, expression.text(), value));
}

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Whether the expression reads a run-time value or a size that varies in the bucket.
bool varies(const manifest::Op& op, const manifest::Expression& expression, std::span<const std::int64_t> frame) {
  const std::vector<int> slots = expression.slots();
  return std::any_of(slots.begin(), slots.end(), [&](int slot) {
    if (slot >= op.first_static()) return false;
    return slot >= op.first_runtime() ||
           op.axes[static_cast<std::size_t>(slot)].policy_at(frame).kind != manifest::PolicyKind::exact;
  });
}

/// Whether a launch of the pass may begin before its predecessor ends. False on devices without that feature.
bool is_programmatic(const manifest::Op& op, const manifest::Pass& pass, std::span<const std::int64_t> frame) {
  const std::int64_t sm = frame[static_cast<std::size_t>(op.first_device_fact())];
  return constant_of(pass.programmatic, frame, "programmatic") != 0 && sm >= manifest::first_programmatic_sm;
}

}  // namespace

std::optional<std::string> broken_fixed_constraint(const manifest::Op& op,
                                                   const manifest::Implementation& implementation,
                                                   std::span<const std::int64_t> frame) {
  for (const manifest::Expression& constraint : implementation.constraints)
    if (!varies(op, constraint, frame) && !constraint.evaluate(frame).truth()) return constraint.text();
  return std::nullopt;
}

Executable::Executable(const manifest::Op& op, const manifest::Implementation& implementation,
                       std::span<const std::int64_t> frame, const Cubin& cubin, const team::TeamBinding* team)
    : Executable(op, implementation, frame,
                 implementation.has_kernels() ? std::make_shared<Module>(cubin.image, cubin.lowered_names) : nullptr,
                 team) {}

Executable::Executable(const manifest::Op& op, const manifest::Implementation& implementation,
                       std::span<const std::int64_t> frame, std::shared_ptr<Module> module,
                       const team::TeamBinding* team, LibraryLoad load)
    : launch_kernel_(cuda::Driver::get().cuLaunchKernelEx),
      module_(std::move(module)),
      op_(op.name),
      first_static_(op.first_static()) {
  load_frame(op, implementation.passes, frame, implementation.is_library());
  load_constraints(op, implementation, frame);
  load_workspaces(implementation, frame);
  load_team(op, implementation, frame, team);
  load_passes(op, &implementation, implementation.passes, frame);
  for (const auto& [tensor, bytes] : implementation.alignment) {
    if (!manifest::Op::takes_part(op.tensors[static_cast<std::size_t>(tensor)], frame)) continue;
    const std::int64_t alignment = constant_of(bytes, frame, "alignment");
    if (alignment < 1 || alignment > most_alignment || (alignment & (alignment - 1)) != 0)
      throw Error(ErrorKind::bad_manifest, fmt::format("{}: alignment {} is {}, not a power of two of at most {}",
                                                       implementation.file, bytes.text(), alignment, most_alignment));
    auto& entry = alignment_[static_cast<std::size_t>(tensor)];
    entry.mask = std::max(entry.mask, static_cast<std::uint64_t>(alignment - 1));
  }
  make_form(op, frame, implementation.is_library());
  if (!implementation.is_library()) return;
  library_ = make_library_call(op, implementation, frame, workspaces_, team);
  if (load == LibraryLoad::now) library_->load();
  if (!implementation.has_kernels()) {
    workspace_bytes_ = library_->workspace_bytes();
    form_.has_workspace = workspace_bytes_ > 0;
  }
  form_.has_library = true;
  form_.host_lengths = ~0U;
}

Executable::Executable(const manifest::Op& op, std::span<const std::int64_t> frame, const Cubin& cubin)
    : Executable(op, op.reference, frame, std::make_shared<Module>(cubin.image, cubin.lowered_names)) {}

Executable::Executable(const manifest::Op& op, std::span<const manifest::Pass> passes,
                       std::span<const std::int64_t> frame, std::shared_ptr<Module> module)
    : launch_kernel_(cuda::Driver::get().cuLaunchKernelEx),
      module_(std::move(module)),
      op_(op.name),
      first_static_(op.first_static()) {
  load_frame(op, passes, frame, false);
  load_passes(op, nullptr, passes, frame);
  make_form(op, frame, false);
}

void Executable::load_frame(const manifest::Op& op, std::span<const manifest::Pass> passes,
                            std::span<const std::int64_t> frame, bool as_declared) {
  runtime_ = runtime_at(op, frame);
  layout_ = as_declared ? declared_layout(op.axes.size(), op.runtime.size()) : layout_of(op, passes, frame);
  if (as_declared) return;
  slots_ = layout_.of_declared(op.runtime.size());
  for (manifest::Runtime& each : runtime_)
    for (auto* const expression : {&each.default_integer, &each.minimum, &each.maximum})
      if (*expression) *expression = (*expression)->renumbered(slots_);
}

manifest::Expression Executable::fold(const manifest::Expression& expression,
                                      std::span<const std::int64_t> frame) const {
  const manifest::Expression folded = expression.specialise(frame, first_static_);
  return layout_.as_declared ? folded : folded.renumbered(slots_);
}

void Executable::make_form(const manifest::Op& op, std::span<const std::int64_t> frame, bool reads_all) {
  std::vector<manifest::Range> bucket(layout_.slots);
  ranges_.resize(layout_.slots);
  for (std::size_t i = 0; i < layout_.axes; ++i) {
    const manifest::Axis& axis = op.axes[i];
    const manifest::BucketPolicy& policy = axis.policy_at(frame);
    const bool exact = policy.kind == manifest::PolicyKind::exact;
    ranges_[i] =
        exact ? manifest::Range{frame[i], frame[i]} : manifest::Range{axis.minimum, axis.maximum, axis.multiple_of};
    bucket[i] = {policy.low(frame[i], axis.minimum, axis.maximum), frame[i], axis.multiple_of};
  }
  for (std::size_t i = 0; i < runtime_.size(); ++i) {
    if (!runtime_[i].team_rank || team_ == nullptr) continue;
    const std::int64_t rank = team_->team().rank;
    ranges_[layout_.values[i]] = bucket[layout_.values[i]] = {rank, rank};
  }
  const bool has_workspace = workspace_bytes_ > 0 || zeroed_bytes_ > 0;
  form_ = make_launch_form(
      {layout_, ranges_, bucket, runtime_, constraints_, passes_, has_workspace, reads_all, alignment_});
}

bool Executable::covers(const Problem& problem) const noexcept {
  for (std::size_t i = 0; i < layout_.axes; ++i)
    if (problem.axes[i] < ranges_[i].lowest || problem.axes[i] > ranges_[i].highest) return false;
  return true;
}

void Executable::load_constraints(const manifest::Op& op, const manifest::Implementation& implementation,
                                  std::span<const std::int64_t> frame) {
  for (const manifest::Expression& constraint : implementation.constraints)
    if (varies(op, constraint, frame)) constraints_.push_back(fold(constraint, frame));
}

void Executable::load_workspaces(const manifest::Implementation& implementation, std::span<const std::int64_t> frame) {
  std::size_t symmetric = 0;
  for (const manifest::Workspace& workspace : implementation.workspaces) {
    const std::int64_t bytes = constant_of(workspace.bytes, frame, "workspace " + workspace.name);
    if (bytes < 0 || bytes > (std::int64_t{1} << 46))
      throw Error(ErrorKind::bad_manifest,
                  fmt::format("{}: workspace {} comes to {} bytes", implementation.file, workspace.name, bytes));
    std::int64_t& block = workspace.symmetric ? symmetric_workspace_bytes_
                          : workspace.zeroed  ? zeroed_bytes_
                                              : workspace_bytes_;
    workspaces_.push_back({workspace.name, block, bytes, workspace.zeroed, symmetric});
    symmetric += workspace.symmetric ? 1U : 0U;
    block += round_up(bytes, team::workspace_alignment);
  }
}

void Executable::load_team(const manifest::Op& op, const manifest::Implementation& implementation,
                           std::span<const std::int64_t> frame, const team::TeamBinding* team) {
  if (!op.is_of_team()) return;
  if (team == nullptr) refuse_without_team(op_);
  std::vector<std::int64_t> offsets;
  for (std::size_t i = 0; i < workspaces_.size(); ++i)
    if (implementation.workspaces[i].symmetric) offsets.push_back(workspaces_[i].offset);
  team_ = std::make_unique<TeamArguments>(op_, *team, frame[static_cast<std::size_t>(op.team_axis())], offsets,
                                          symmetric_workspace_bytes_);
  for (manifest::Runtime& each : runtime_)
    if (each.team_rank) each.default_integer = manifest::Expression::constant(team->rank);
}

void Executable::load_passes(const manifest::Op& op, const manifest::Implementation* implementation,
                             std::span<const manifest::Pass> passes, std::span<const std::int64_t> frame) {
  for (const manifest::Tensor& tensor : op.tensors) {
    tensor_names_.push_back(tensor.name);
    const bool present = manifest::Op::takes_part(tensor, frame);
    alignment_.push_back({present ? static_cast<std::uint64_t>(size_of(op.dtype_of(tensor, frame)) - 1) : 0,
                          present && !tensor.optional});
  }
  std::size_t name = 0;
  for (const manifest::Pass& pass : passes) {
    if (pass.when && constant_of(*pass.when, frame, "when") == 0) continue;
    if (const auto& parameters = module_->parameters(name)) check_arguments(op, implementation, pass, *parameters);
    LoadedPass loaded;
    loaded.kernel = module_->name(name);
    loaded.function = module_->function(name);
    for (std::size_t i = 0; i < 3; ++i) loaded.grid[i] = fold(pass.grid[i], frame);
    loaded.config.blockDimX = dimension_of(pass.block[0], frame, "block");
    loaded.config.blockDimY = dimension_of(pass.block[1], frame, "block");
    loaded.config.blockDimZ = dimension_of(pass.block[2], frame, "block");
    const std::int64_t shared = constant_of(pass.shared, frame, "shared");
    if (shared < 0 || shared > std::numeric_limits<int>::max())
      throw Error(ErrorKind::bad_manifest,
                  fmt::format("shared = {} is {} bytes, which no launch can have", pass.shared.text(), shared));
    module_->allow_shared(name, shared);
    loaded.config.sharedMemBytes = static_cast<unsigned>(shared);
    load_attributes(op, loaded, pass, frame);
    if (pass.cooperative) {
      const auto threads =
          static_cast<int>(loaded.config.blockDimX * loaded.config.blockDimY * loaded.config.blockDimZ);
      const auto multiprocessors = static_cast<std::size_t>(op.first_device_fact()) + 1;
      loaded.most_blocks = module_->occupancy(name, threads, shared) * frame[multiprocessors];
    }
    for (const manifest::Argument& argument : pass.arguments)
      loaded.arguments.push_back(load_argument(op, argument, frame));
    passes_.push_back(std::move(loaded));
    ++name;
  }
}

void Executable::load_attributes(const manifest::Op& op, LoadedPass& loaded, const manifest::Pass& pass,
                                 std::span<const std::int64_t> frame) {
  const unsigned x = dimension_of(pass.cluster[0], frame, "cluster");
  const unsigned y = dimension_of(pass.cluster[1], frame, "cluster");
  const unsigned z = dimension_of(pass.cluster[2], frame, "cluster");
  if (x > 1 || y > 1 || z > 1) {
    CUlaunchAttribute& attribute = loaded.attributes[loaded.attribute_count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = x;
    attribute.value.clusterDim.y = y;
    attribute.value.clusterDim.z = z;
  }
  if (pass.cooperative) {
    CUlaunchAttribute& attribute = loaded.attributes[loaded.attribute_count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  }
  if (is_programmatic(op, pass, frame)) {
    CUlaunchAttribute& attribute = loaded.attributes[loaded.attribute_count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
}

LoadedArgument Executable::load_argument(const manifest::Op& op, const manifest::Argument& argument,
                                         std::span<const std::int64_t> frame) const {
  LoadedArgument loaded;
  loaded.kind = argument.kind;
  loaded.index = argument.index;
  switch (argument.kind) {
    case manifest::ArgumentKind::runtime:
      loaded.index = layout_.values[static_cast<std::size_t>(argument.index)];
      break;
    case manifest::ArgumentKind::pack:
      for (const manifest::Argument& each : argument.members) loaded.members.push_back(load_argument(op, each, frame));
      break;
    case manifest::ArgumentKind::tensor:
      loaded.absent = !manifest::Op::takes_part(op.tensors[static_cast<std::size_t>(argument.index)], frame);
      break;
    case manifest::ArgumentKind::view:
    case manifest::ArgumentKind::workspace_view: load_view(op, argument, frame, loaded); break;
    case manifest::ArgumentKind::workspace:
    case manifest::ArgumentKind::zeroed_workspace:
      loaded.offset = workspaces_.at(static_cast<std::size_t>(argument.index)).offset;
      break;
    case manifest::ArgumentKind::team: loaded.fixed = &team_->team(); break;
    case manifest::ArgumentKind::peers:
      loaded.fixed = &team_->peers(workspaces_.at(static_cast<std::size_t>(argument.index)).symmetric);
      break;
    case manifest::ArgumentKind::expression:
      loaded.value = fold(argument.value, frame);
      loaded.limits = range_of(argument.type);
      break;
    case manifest::ArgumentKind::tensor_map:
    case manifest::ArgumentKind::workspace_map: load_tensor_map(op, argument, frame, loaded); break;
    default: break;
  }
  return loaded;
}

void Executable::load_view(const manifest::Op& op, const manifest::Argument& argument,
                           std::span<const std::int64_t> frame, LoadedArgument& loaded) const {
  const auto index = static_cast<std::size_t>(argument.index);
  loaded.absent = argument.when && constant_of(*argument.when, frame, "'when' of a view argument") == 0;
  for (const manifest::Expression& each : argument.strides) loaded.strides.push_back(fold(each, frame));
  if (argument.kind == manifest::ArgumentKind::view) {
    loaded.absent = loaded.absent || !manifest::Op::takes_part(op.tensors[index], frame);
    return;
  }
  const LoadedWorkspace& workspace = workspaces_.at(index);
  loaded.offset = workspace.offset;
  loaded.zeroed = workspace.zeroed;
}

void Executable::load_tensor_map(const manifest::Op& op, const manifest::Argument& argument,
                                 std::span<const std::int64_t> frame, LoadedArgument& loaded) const {
  const auto index = static_cast<std::size_t>(argument.index);
  const LoadedWorkspace* const workspace =
      argument.kind == manifest::ArgumentKind::workspace_map ? &workspaces_.at(index) : nullptr;
  loaded.absent = (argument.when && constant_of(*argument.when, frame, "'when' of a TMA argument") == 0) ||
                  (workspace != nullptr && workspace->bytes == 0);
  if (loaded.absent) return;
  loaded.swizzle = static_cast<std::uint32_t>(constant_of(argument.swizzle, frame, "swizzle"));
  const auto specialise = [&](const std::vector<manifest::Expression>& from, std::vector<manifest::Expression>& to) {
    for (const auto& each : from) to.push_back(fold(each, frame));
  };
  specialise(argument.shape, loaded.shape);
  specialise(argument.strides, loaded.strides);
  specialise(argument.box, loaded.box);
  if (workspace != nullptr) {
    loaded.tensor = workspace->name;
    loaded.offset = workspace->offset;
    loaded.zeroed = workspace->zeroed;
    if (argument.half >= 0)
      loaded.address = team_->peers(workspace->symmetric).of[static_cast<std::size_t>(team_->team().rank)] +
                       static_cast<std::uint64_t>(argument.half) * team_->team().half_bytes;
    loaded.dtype = op.dtype_of(argument.element, frame);
    if (argument.unbounded) return;
    loaded.tensor_shape = {manifest::Expression::constant(workspace->bytes / size_of(loaded.dtype))};
    loaded.tensor_strides = {manifest::Expression::constant(1)};
    return;
  }
  const manifest::Tensor& tensor = op.tensors[index];
  loaded.tensor = tensor.name;
  loaded.dtype = op.dtype_of(tensor, frame);
  if (argument.unbounded) return;
  specialise(tensor.shape, loaded.tensor_shape);
  specialise(tensor.strides, loaded.tensor_strides);
}

std::string Executable::explain(const CallFrame& call, const Arguments& arguments) const {
  for (std::size_t i = 0; i < alignment_.size(); ++i) {
    const auto address = reinterpret_cast<std::uint64_t>(arguments.tensors[i]);
    if (address == 0 && alignment_[i].required)
      return fmt::format("tensor '{}' is missing (a null address)", tensor_names_[i]);
    if ((address & alignment_[i].mask) != 0)
      return fmt::format("tensor '{}' at {:#x} is not a multiple of {} bytes", tensor_names_[i], address,
                         alignment_[i].mask + 1);
  }
  for (const manifest::Expression& constraint : constraints_)
    if (!constraint.evaluate(call.view()).truth())
      return fmt::format("the constraint '{}' does not hold", constraint.text());
  if ((arguments.lengths_set & form_.host_lengths) != 0) return "a library takes no length in device memory";
  return library_ != nullptr ? "the library does not take these sizes" : "";
}

bool Executable::overlaps_predecessor() const noexcept {
  if (passes_.empty()) return false;
  const auto begin = passes_.front().attributes.begin(), end = begin + passes_.front().attribute_count;
  return std::any_of(begin, end, [](const CUlaunchAttribute& each) {
    return each.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  });
}

Resources Executable::resources() const {
  if (passes_.empty()) return {};
  Resources resources = module_->resources(0);
  for (std::size_t i = 1; i < passes_.size(); ++i)
    resources.spill_bytes = std::max(resources.spill_bytes, module_->resources(i).spill_bytes);
  return resources;
}

int Executable::occupancy() const {
  if (passes_.empty()) return 0;
  const CUlaunchConfig& config = passes_.front().config;
  const unsigned threads = config.blockDimX * config.blockDimY * config.blockDimZ;
  return module_->occupancy(0, static_cast<int>(threads), config.sharedMemBytes);
}

std::int64_t Executable::blocks(const CallFrame& call) const noexcept {
  if (passes_.empty()) return 0;
  std::int64_t blocks = 1;
  for (const manifest::Expression& each : passes_.front().grid) {
    const manifest::Value value = each.evaluate(call.view());
    if (!value.ok() || __builtin_mul_overflow(blocks, value.number, &blocks)) return 0;
  }
  return blocks;
}

}  // namespace kiln::jit

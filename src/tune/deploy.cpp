#include "tune/deploy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "spec/text.hpp"
#include "tune/internal_kernels.hpp"

namespace kiln::tune {

Usable usable(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device, const store::Record& record) {
  Usable result;
  const spec::Implementation* implementation = op.find(record.implementation);
  if (implementation == nullptr) {
    result.why_not = fmt::format("its implementation {} is not declared by the op", spec::quote(record.implementation));
    return result;
  }
  auto config = spec::parse_config(*implementation, record.config);
  if (!config) {
    result.why_not = fmt::format("its config {} is outside the declared space of '{}'", spec::quote(record.config),
                                 implementation->name);
    return result;
  }
  if (auto why = spec::why_not_eligible(op, *implementation, bucket, device)) {
    result.why_not = fmt::format("'{}' cannot serve here: {}", record.implementation, *why);
    return result;
  }
  if (auto broken = spec::broken_constraint(op, *implementation, bucket, device, *config)) {
    result.why_not = fmt::format("its config breaks the constraint '{}'", *broken);
    return result;
  }
  if (implementation->is_library()) {
    const auto frame = spec::make_frame(op, implementation, bucket, device, *config);
    if (auto why = jit::why_library_refuses(op, *implementation, frame)) {
      result.why_not = std::move(*why);
      return result;
    }
  }
  result.implementation = implementation;
  result.config = std::move(*config);
  return result;
}

Usable default_for(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device) {
  Usable result;
  for (const spec::Implementation& implementation : op.implementations) {
    if (implementation.is_library() || spec::why_not_eligible(op, implementation, problem, device)) continue;
    if (spec::broken_constraint(op, implementation, problem, device, implementation.default_config)) continue;
    result.implementation = &implementation;
    result.config = implementation.default_config;
    return result;
  }
  result.why_not = fmt::format("no implementation of '{}' has a default that is legal for {}", op.name,
                               spec::to_string(op, problem));
  return result;
}

std::vector<jit::Specialisation> deployed(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device,
                                          const std::string& arch, const store::Record* record) {
  std::vector<jit::Specialisation> result;
  const auto add = [&](const spec::Implementation& implementation, const spec::Config& config) {
    const auto frame = spec::make_frame(op, &implementation, bucket, device, config);
    result.push_back(jit::specialise(op, implementation, frame, arch));
  };
  const spec::Implementation* winner = nullptr;
  spec::Config winning;
  if (record != nullptr) {
    Usable served = usable(op, bucket, device, *record);
    winner = served.implementation;
    winning = std::move(served.config);
    if (winner != nullptr && !winner->is_library()) add(*winner, winning);
  }
  for (const spec::Implementation& implementation : op.implementations) {
    if (&implementation == winner && implementation.default_config == winning) continue;
    if (implementation.is_library()) continue;
    if (spec::why_not_eligible(op, implementation, bucket, device)) continue;
    if (spec::broken_constraint(op, implementation, bucket, device, implementation.default_config)) continue;
    add(implementation, implementation.default_config);
  }
  return result;
}

std::vector<jit::Specialisation> verification(const spec::Op& op, const Problem& bucket,
                                              const spec::DeviceFacts& device, const std::string& arch) {
  const auto frame = spec::make_frame(op, nullptr, bucket, device);
  std::vector<jit::Specialisation> result;
  result.push_back(jit::specialise_reference(op, frame, arch));
  result.push_back(evict_kernel(arch));
  if (has_lengths(op)) result.push_back(late_copy_kernel(arch));
  for (const spec::Tensor& tensor : op.tensors) {
    if (!spec::Op::takes_part(tensor, frame)) continue;
    const spec::DType type = op.dtype_of(tensor, frame);
    result.push_back(fill_kernel(type, arch));
    if (tensor.output) {
      result.push_back(compare_kernels(type, arch));
      if (spec::Op::is_initialised(tensor, frame)) result.push_back(fill_kernel(reference_type(type), arch));
    }
  }
  return result;
}

}  // namespace kiln::tune

#include "tune/deploy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manifest/text.hpp"
#include "tune/internal_kernels.hpp"
#include "tune/serving.hpp"

namespace kiln::tune {

Usable usable(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device,
              std::string_view name, std::string_view config_text) {
  Usable result;
  const manifest::Implementation* implementation = op.find(name);
  if (implementation == nullptr) {
    result.why_not = fmt::format("its implementation {} is not declared by the op", manifest::quote(name));
    return result;
  }
  auto config = manifest::parse_config(*implementation, config_text);
  if (!config) {
    result.why_not = fmt::format("its config {} is outside the declared space of '{}'", manifest::quote(config_text),
                                 implementation->name);
    return result;
  }
  if (auto why = manifest::why_not_eligible(op, *implementation, problem, device)) {
    result.why_not = fmt::format("'{}' cannot serve here: {}", name, *why);
    return result;
  }
  if (auto broken = manifest::broken_constraint(op, *implementation, problem, device, *config)) {
    result.why_not = fmt::format("its config breaks the constraint '{}'", *broken);
    return result;
  }
  if (implementation->is_library()) {
    const auto frame = manifest::make_frame(op, implementation, problem, device, *config);
    if (auto why = jit::why_library_refuses(op, *implementation, frame)) {
      result.why_not = std::move(*why);
      return result;
    }
  }
  result.implementation = implementation;
  result.config = std::move(*config);
  return result;
}

Usable default_for(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device) {
  Usable result;
  for (const manifest::Implementation& implementation : op.implementations) {
    if (implementation.is_library() || manifest::why_not_eligible(op, implementation, problem, device)) continue;
    if (manifest::broken_constraint(op, implementation, problem, device, implementation.default_config)) continue;
    result.implementation = &implementation;
    result.config = implementation.default_config;
    return result;
  }
  result.why_not = fmt::format("no implementation of '{}' has a default that is legal for {}", op.name,
                               manifest::display_text(op, problem));
  return result;
}

std::vector<jit::Specialisation> deployed(const manifest::Op& op, const Problem& bucket,
                                          const manifest::DeviceFacts& device, const std::string& arch,
                                          const store::Record* record) {
  std::vector<jit::Specialisation> result;
  std::vector<std::pair<const manifest::Implementation*, manifest::Config>> added;
  const auto add_once = [&](const Problem& at, const manifest::Implementation& implementation,
                            const manifest::Config& config) {
    if (implementation.is_library() || std::ranges::find(added, std::pair(&implementation, config)) != added.end())
      return;
    added.emplace_back(&implementation, config);
    const auto frame = manifest::make_frame(op, &implementation, at, device, config);
    result.push_back(jit::specialise(op, implementation, frame, arch));
  };
  if (record != nullptr) {
    const Servings servings = servings_of(op, bucket, device, *record);
    for (const auto* role : {&servings.fastest, &servings.without_library})
      for (const Serving& each : *role) add_once(each.at(), *each.usable.implementation, each.usable.config);
  }
  for (const manifest::Implementation& implementation : op.implementations)
    if (!implementation.is_library() && !manifest::why_not_eligible(op, implementation, bucket, device) &&
        !manifest::broken_constraint(op, implementation, bucket, device, implementation.default_config))
      add_once(bucket, implementation, implementation.default_config);
  return result;
}

std::vector<jit::Specialisation> verification(const manifest::Op& op, const Problem& bucket,
                                              const manifest::DeviceFacts& device, const std::string& arch) {
  const auto frame = manifest::make_frame(op, nullptr, bucket, device);
  std::vector<jit::Specialisation> result;
  result.push_back(jit::specialise_reference(op, frame, arch));
  result.push_back(evict_kernel(arch));
  if (has_lengths(op)) result.push_back(late_copy_kernel(arch));
  for (const manifest::Tensor& tensor : op.tensors) {
    if (!manifest::Op::takes_part(tensor, frame)) continue;
    const manifest::DType type = op.dtype_of(tensor, frame);
    result.push_back(fill_kernel(type, arch));
    if (tensor.output) {
      result.push_back(compare_kernels(type, arch));
      if (manifest::Op::is_initialised(tensor, frame)) result.push_back(fill_kernel(reference_type(type), arch));
    }
  }
  return result;
}

}  // namespace kiln::tune

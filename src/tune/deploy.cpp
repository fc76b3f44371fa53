#include "tune/deploy.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "answer/serving.hpp"
#include "jit/executable.hpp"
#include "tune/internal_kernels.hpp"
#include "tune/preparation.hpp"

namespace kiln::tune {

std::vector<jit::Specialisation> deployed(const manifest::Op& op, const Problem& bucket,
                                          const manifest::DeviceFacts& device, const std::string& arch,
                                          const store::Record* record) {
  std::vector<jit::Specialisation> result;
  std::vector<std::pair<const manifest::Implementation*, manifest::Config>> added;
  const auto add_once = [&](const Problem& at, const manifest::Implementation& implementation,
                            const manifest::Config& config) {
    if (!implementation.has_kernels() || std::ranges::find(added, std::pair(&implementation, config)) != added.end())
      return;
    added.emplace_back(&implementation, config);
    const auto frame = manifest::make_frame(op, &implementation, at, device, config);
    result.push_back(jit::specialise(op, implementation, frame, arch));
  };
  if (record != nullptr) {
    const answer::Servings servings = answer::servings_of(op, bucket, device, *record);
    for (const auto* role : {&servings.fastest, &servings.without_library})
      for (const answer::Serving& each : *role) add_once(each.at(), *each.usable.implementation, each.usable.config);
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
  if (op.team_axis() >= 0 && device.link != manifest::TeamLink::network) result.push_back(team_barrier_kernel(arch));
  if (op.prepare) std::ranges::copy(Preparation::specialisations(op, frame, arch), std::back_inserter(result));
  if (needs_late_copy(op)) result.push_back(late_copy_kernel(arch));
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

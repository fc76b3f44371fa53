#include "tune/verification_code.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "jit/executable.hpp"
#include "tune/internal_kernels.hpp"
#include "tune/preparation.hpp"

namespace kiln::tune {

std::vector<jit::Specialisation> verification(const manifest::Bucket& bucket, const std::string& arch) {
  const manifest::Op& op = *bucket.op;
  const auto frame = manifest::frame_of(bucket, bucket.edge);
  std::vector<jit::Specialisation> result;
  result.push_back(jit::specialise_reference(op, frame, arch));
  result.push_back(evict_kernel(arch));
  if (op.is_of_team() && bucket.device->link != manifest::TeamLink::network)
    result.push_back(team_barrier_kernel(arch));
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

std::vector<store::CubinRow> verification_rows(const manifest::Bucket& bucket, const std::string& arch,
                                               answer::Cubins& cubins) {
  std::vector<store::CubinRow> rows;
  for (const jit::Specialisation& needed : verification(bucket, arch))
    rows.push_back(answer::to_row(needed, cubins.get(needed)));
  return rows;
}

}  // namespace kiln::tune

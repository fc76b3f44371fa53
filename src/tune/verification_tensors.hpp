// The tensors of a verification case in device memory: allocated, filled and poisoned. Private to the module.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "jit/module.hpp"
#include "tune/preparation.hpp"
#include "tune/tensor_extent.hpp"
#include "tune/verification_case.hpp"

namespace kiln::tune {

inline constexpr std::int64_t guard_bytes = 256;    // after each output, to detect a write past its end
inline constexpr unsigned char poison_byte = 0xff;  // makes a NaN in every floating type

/// Launches a kernel of templates/internal over `elements`. Throws Error(driver_failed).
void launch_internal(CUfunction function, std::int64_t elements, void** parameters, CUstream stream);

class VerificationTensors {
 public:
  struct Tensor {
    TensorExtent extent;
    cuda::Buffer data;
    cuda::Buffer wanted;           // of an output: the reference's result
    cuda::Buffer kept;             // of a prepared input: its values, while it is poisoned
    cuda::Buffer parts;            // of an input with per_rank: the parts of all ranks, for the reference
    std::int64_t part_stride = 0;  // elements from a part to the next
    std::int64_t offset = 0;       // bytes from the allocation to the first element
    [[nodiscard]] CUdeviceptr address() const { return data.pointer() + static_cast<CUdeviceptr>(offset); }
  };

  explicit VerificationTensors(const manifest::Site& site)
      : op(*site.op), device(*site.device), tensors(op.tensors.size()) {}

  /// Loads the fill kernels of the problem's types, and the op's [prepare]. Throws as Cubins::get_and_keep() does.
  void load(const std::string& arch, answer::Cubins& cubins);
  /// Allocates the tensors of `problem` and sets the arguments. Throws Error(out_of_memory) with op, problem and bytes.
  void allocate(const Placement& placement, CUstream stream);
  /// Fills inputs, and the wanted values of outputs that are also read. `seed` decides the values. Then prepares for
  /// `problem`.
  void fill(std::uint64_t seed, CUstream stream);
  /// Runs the op's [prepare] for sizes that need no more memory. Does nothing where it ran last for the same sizes and
  /// case.
  void prepare(const Problem& at, std::size_t prepare_case, CUstream stream);
  /// Prepares again what the problem's own sizes and case need.
  void prepare(CUstream stream) { prepare(problem, prepare_case, stream); }
  /// Poisons the outputs. Outputs that are also read, or take an input's place, get their values back.
  void poison_outputs(CUstream stream);
  /// Poisons inputs and lengths on the device.
  void poison_inputs(CUstream stream);
  /// Gives poisoned inputs and lengths their values back, by kernels that later launches may overtake.
  void refill_inputs(CUstream stream);

  [[nodiscard]] std::vector<std::int64_t> frame() const;
  [[nodiscard]] bool takes_part(std::size_t tensor) const {
    return manifest::Op::takes_part(op.tensors[tensor], frame());
  }
  [[nodiscard]] bool is_initialised(std::size_t tensor) const {
    return manifest::Op::is_initialised(op.tensors[tensor], frame());
  }

  const manifest::Op& op;
  manifest::DeviceFacts device;
  Problem problem;
  Problem launched;               // the sizes that candidates are given: `problem`, or the bound of its lengths
  std::vector<Tensor> tensors;    // by tensor of the op; empty where it takes no part
  Arguments arguments;            // for candidates
  Arguments reference_arguments;  // with `wanted` in place of outputs
  std::optional<std::pair<TensorId, TensorId>> in_place;
  std::size_t prepare_case = 0;  // of the op's [prepare]
  std::int32_t rank = 0;         // of a team op

 private:
  struct FillParameters {
    CUdeviceptr pointer;
    long long count;
    unsigned long long seed;
    int kind;
    double scale;
    std::array<void*, 6> pointers(long long* cycles) { return {&pointer, &count, &seed, &kind, &scale, cycles}; }
  };
  /// The values of a tensor with per_rank are those of `of_rank`; other tensors have the same on all ranks.
  [[nodiscard]] FillParameters fill_parameters(CUdeviceptr pointer, std::size_t tensor, std::uint64_t seed,
                                               std::int32_t of_rank) const;
  void fill_one(CUdeviceptr pointer, manifest::DType type, std::size_t tensor, std::uint64_t seed, std::int32_t of_rank,
                CUstream stream);
  void fill_parts(std::size_t tensor, std::uint64_t seed, CUstream stream);
  [[nodiscard]] std::int64_t world() const;
  void set_rank(const Placement& placement);
  /// Bytes of what the reference alone has: of an output the wanted values, of an input with per_rank the parts of all
  /// ranks.
  [[nodiscard]] std::int64_t reference_bytes(std::size_t tensor) const;
  [[nodiscard]] bool is_prepared(std::size_t tensor) const {
    return op.tensors[tensor].fill == manifest::Fill::prepared && takes_part(tensor);
  }
  void copy_late(CUdeviceptr to, CUdeviceptr from, std::int64_t bytes, CUstream stream);
  void bound_lengths(const Placement& placement, std::vector<std::int64_t>& frame, CUstream stream);
  [[nodiscard]] std::int64_t bytes_of(const manifest::Tensor& tensor, const TensorExtent& extent,
                                      std::span<const std::int64_t> frame) const;
  [[nodiscard]] bool is_bounded() const { return arguments.lengths_set != 0; }

  cuda::Buffer lengths_;       // an int32 for each axis
  cuda::Buffer true_lengths_;  // the values that refill_inputs() writes to `lengths_`
  std::map<manifest::DType, jit::Module> fill_;
  std::optional<jit::Module> copy_late_;  // where needs_late_copy()
  std::optional<Preparation> preparation_;
  std::optional<std::pair<Problem, std::size_t>> prepared_for_;  // sizes and case
  std::uint64_t seed_ = 0;
};

}  // namespace kiln::tune

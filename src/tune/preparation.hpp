// Makes an op's structured inputs: runs the passes of [prepare].
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "jit/executable.hpp"
#include "jit/module.hpp"
#include "manifest/problem.hpp"

namespace kiln::tune {

class Preparation {
 public:
  /// Returns the specialisation of each case. `frame` comes from manifest::frame_of. The op must have [prepare].
  static std::vector<jit::Specialisation> specialisations(const manifest::Op& op, std::span<const std::int64_t> frame,
                                                          const std::string& arch);
  /// Loads the kernels, for all problems with the selections and exact axes of `frame`. Throws as
  /// Cubins::get_and_keep() does.
  Preparation(const manifest::Site& site, std::span<const std::int64_t> frame, const std::string& arch,
              answer::Cubins& cubins);
  /// Writes the prepared tensors of `arguments` for these sizes, and waits. `seed` decides the values. Throws
  /// Error(bad_input) for sizes that a pass cannot take, and Error(driver_failed).
  void run(const Problem& problem, const Arguments& arguments, std::uint64_t seed, std::size_t prepare_case,
           CUstream stream) const;

 private:
  const manifest::Op& op_;
  manifest::DeviceFacts device_;
  std::vector<std::shared_ptr<jit::Module>> modules_;  // by case; cases with equal kernels share one
};

/// Returns the cases of the op's [prepare], the first that is timed last; the one case 0 for an op without.
std::vector<std::size_t> cases_timed_last(const manifest::Op& op);
/// Returns " with inputs 'skewed'", or an empty string for an op without [prepare].
std::string inputs_text(const manifest::Op& op, std::size_t prepare_case);

}  // namespace kiln::tune

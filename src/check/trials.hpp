// The problems and configs that an implementation is checked with.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "manifest/site.hpp"
#include "manifest/variant.hpp"

namespace kiln::check {

/// A device class to check for, present or not.
struct Target {
  manifest::DeviceFacts facts;
  std::string arch;  // "sm_90a"
};

/// A problem with configs that are legal there, the default first where it is.
struct Trial {
  Problem problem;
  std::vector<manifest::Config> configs;
};

struct Trials {
  bool is_required_somewhere = false;   // some allowed types and choices meet `requires`
  std::vector<Trial> usual;             // usual sizes with each value of each type and choice, the defaults first
  std::vector<Trial> edges;             // each size at its ends, with the types and choices of the first
  std::vector<manifest::Config> legal;  // at the first trial, at most most_legal of them
};

inline constexpr std::size_t most_legal = 20'000;
inline constexpr std::array<std::int64_t, 12> usual_sizes = {4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 1};

/// The allowed types and choices, as problems without sizes: the defaults, then with each value, each two and each
/// three in place of defaults, at most 4096.
std::vector<Problem> allowed_selections(const manifest::Op& op);
/// Sets each axis to `size`, or to the nearest legal size. The axis of a team has 2 or its nearest.
Problem at_size(const manifest::Op& op, Problem selections, std::int64_t size);

/// Whether all tensors together are no more than a device may hold.
bool fits_a_device(const manifest::Site& site, const Problem& problem);

/// Returns problems of sizes that differ between axes, of `count` those that fit a device. Each run guesses the same.
std::vector<Problem> guessed_sizes(const manifest::Site& site, const Problem& selections, int count);

/// Chooses trials of an implementation with kernels. Tries `asked` before usual sizes.
Trials trials_of(const manifest::Site& site, const manifest::Implementation& implementation,
                 std::span<const Problem> selections, std::span<const Problem> asked);

/// Variant::frame(), in which a run-time integer without a default has its minimum, else 1, as a launch gives it.
std::vector<std::int64_t> launch_frame(const manifest::Site& site, const manifest::Variant& variant,
                                       const Problem& problem);
/// "rows=4096 cols=4096 dtype=bf16, threads=256, sm_90a"
std::string text_of(const manifest::Op& op, const Problem& problem, const manifest::Variant& variant,
                    const Target& target);

}  // namespace kiln::check

// Chooses how a kernel is launched: compares the values of parameters that change the launch but not the kernel.
#pragma once

#include <string>
#include <vector>

#include "tune/bench.hpp"

namespace kiln::tune {

/// A config of the kernel, and the verdict on it.
struct LaunchTrial {
  manifest::Config config;
  Admission admission;
};

struct LaunchChoice {
  std::vector<LaunchTrial> trials;  // the first is the usual launch, by which the kernel was searched
  std::size_t chosen = 0;
  // The chosen launch's time over the usual one's, where they differ:
  Cost of_usual;  // in a chain
  Cost apart;     // alone, in turns with the usual one
};

/// What all launches of a kernel have in common.
struct Kernel {
  const manifest::Implementation& implementation;
  const jit::Cubin& cubin;
  const Problem& at;  // Trial::at
};

/// Verifies each of `launches`, times them in turns in chains, and compares them as choose() does: the first stays
/// unless another is faster beyond the noise. `size`: the size of the bench at which they are compared. They are
/// admitted to the bench under `first_number` and the numbers after it, and dropped again. Throws as the bench does.
///
/// A launch that may begin early gains where its head overlaps the tail of its predecessor. Timing it alone does not
/// show the gain, because an event or a flush separates kernels. In a chain each launch follows another of itself. Its
/// real predecessors and successors may overlap less, and equal launches find their inputs in L2, whatever the regime.
/// So the choice suits launches in immediate succession, as in a decode step. Behind an idle stream both launches begin
/// equally early.
LaunchChoice choose_launch(Bench& bench, std::size_t first_number, std::size_t size, const Kernel& kernel,
                           const std::vector<manifest::Config>& launches);

}  // namespace kiln::tune

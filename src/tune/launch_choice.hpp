// How the winning kernel is launched: its launch-only parameters, compared where they differ.
#pragma once

#include <string>
#include <vector>

#include "tune/bench.hpp"

namespace kiln::tune {

/// A config of the winner's kernel and what became of it.
struct LaunchTrial {
  manifest::Config config;
  Admission admission;
};

struct LaunchChoice {
  std::vector<LaunchTrial> trials;  // the winner as it was searched first
  std::size_t chosen = 0;
  // Of one that is not the first, how many times as long as that it takes:
  Cost of_usual;  // in a chain
  Cost apart;  // alone, as candidates are timed, and in turns with it, for a chain leaves another clock than it found
};

/// What all launches have in common.
struct Kernel {
  const manifest::Implementation& implementation;
  const jit::Cubin& cubin;
  const Problem& at;  // Trial::at
};

/// Verifies each of `launches`, times them in turns in chains and compares them as choose() does: the first stays unless another is faster
/// beyond the noise.
///
/// A launch that may begin early gains where the tail of its predecessor overlaps its head, which nothing shows that times a launch
/// alone: an event or a flush between two kernels keeps them apart. In a chain each launch follows another of itself, which stands for
/// the predecessor and successor that it will have. They are not the same: one that triggers early leaves more room than one that does
/// not, and equal launches find their inputs in L2, whatever the regime. So the choice is right for launches that follow each other at
/// once, as in a decode step, and costs nothing elsewhere: behind an idle stream either begins as soon.
///
/// They are compared at one length of the bench. `first_number` and those after it number them there, where they are dropped again.
LaunchChoice choose_launch(Bench& bench, std::size_t first_number, std::size_t length, const Kernel& kernel,
                           const std::vector<manifest::Config>& launches);

}  // namespace kiln::tune

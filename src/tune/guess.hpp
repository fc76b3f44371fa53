// What the model would choose where the bucket itself was never measured.
#pragma once

#include <span>
#include <vector>

#include "kiln/options.hpp"
#include "manifest/region.hpp"
#include "tune/neighbours.hpp"

namespace kiln::tune {

/// True when every pass says what it does ([pass.model]), so that estimates may tell its configs apart. A
/// library says nothing.
bool has_model(const manifest::Implementation& implementation) noexcept;

struct Expected {
  const manifest::Implementation* implementation = nullptr;  // null: nothing that has a model is legal
  manifest::Config config;
  double ns = 0;
};
/// What the model expects to be fastest at `at`, of configs of eligible implementations that have a model, which are legal there and at
/// `problem` of the same bucket.
Expected fastest_expected(const manifest::Op& op, const Problem& at, const Problem& problem,
                          const manifest::DeviceFacts& device, Regime regime);

/// A config for some sizes of a bucket.
struct Guess {
  manifest::Region region;
  Winner of;
  bool has_won = false;  // it is one of the winners
};
/// Configs that are expected to be fastest, each for sizes of its own, in the order of these; all together for all sizes of the bucket. They are of implementations that have a
/// model, and a few as a record's are. What has won in a near bucket counts for more than what the model alone speaks for. Each is legal at the upper end of
/// its sizes. The default is among them where nothing promises enough more to be worth a compile. Empty when no implementation has a model, and when nothing is legal.
std::vector<Guess> guesses_for(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device,
                               Regime regime, std::span<const Winner> winners = {});

}  // namespace kiln::tune

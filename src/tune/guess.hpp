// What the model would choose where nothing near was ever measured.
#pragma once

#include "kiln/options.hpp"
#include "spec/problem.hpp"
#include "tune/deploy.hpp"

namespace kiln::tune {

/// True when every pass says what it does ([pass.model]), so that estimates may tell its configs apart. A
/// library says nothing.
bool has_model(const spec::Implementation& implementation) noexcept;

struct Expected {
  const spec::Implementation* implementation = nullptr;  // null: nothing that has a model is legal
  spec::Config config;
  double ns = 0;
};

/// What the model expects to be fastest at the upper edge of `bucket`, of configs of eligible implementations that have a model, which are
/// legal there and at `problem`.
Expected fastest_expected(const spec::Op& op, const Problem& bucket, const Problem& problem,
                          const spec::DeviceFacts& device, Regime regime);

/// The config that the model expects to be fastest in the bucket of `problem`, of an eligible implementation that has a model; legal
/// at the bucket's upper edge and at `problem`. Null, with the reason, when no implementation has a model, when nothing is legal,
/// or when it promises too little over the default to be worth a compile.
Usable guess_for(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime);

}  // namespace kiln::tune

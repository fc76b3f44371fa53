// The configs that the cost model expects to be fastest in a bucket that was never measured.
#pragma once

#include <span>
#include <vector>

#include "answer/neighbours.hpp"
#include "manifest/region.hpp"

namespace kiln::answer {

/// Whether every pass has a [pass.model], so that estimates may tell configs apart. False for a library.
bool has_model(const manifest::Implementation& implementation) noexcept;

struct Expected : manifest::Variant {  // none: no implementation with a model is legal
  double ns = 0;
};
/// Returns the config that the model expects to be fastest at `at`, among those legal both there and at `problem` of
/// the same bucket. Implementations without a model do not take part.
Expected fastest_expected(const manifest::Site& site, const Problem& at, const Problem& problem);

/// A config for some sizes of a bucket.
struct Guess {
  manifest::Region region;
  manifest::Variant of;
  bool has_won = false;  // it is one of guesses_for()'s `winners`
};
/// Returns a few configs that are expected to be fastest, in the order of their sizes, which together cover the bucket.
/// Each is legal at the upper end of its sizes. `winners` of near buckets are preferred to configs of equal estimate.
/// The default is kept where no other config is expected to be worth a compile. Empty when no implementation with a
/// model is legal.
std::vector<Guess> guesses_for(const manifest::Bucket& bucket, std::span<const manifest::Variant> winners = {});

}  // namespace kiln::answer

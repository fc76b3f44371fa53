// Which stored configs are declared and legal on a device, and which choices of a record serve which sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/region.hpp"
#include "manifest/variant.hpp"
#include "store/record.hpp"

namespace kiln::answer {

/// A config that is legal for a problem on a device, or the reason why it is not.
struct Usable : manifest::Variant {
  std::string why_not;
};
/// Looks up an implementation and a config by their stored texts. Where a context is current, asks a library whether it
/// takes the config.
Usable usable(const manifest::Site& site, const Problem& at, std::string_view implementation, std::string_view config);

/// Returns the rules that rule out the defaults for this problem, with the implementations that need them: "mma, wgmma
/// need 'heads % key_heads == 0'". Rules that no parameter can meet come before others. Empty where every default is
/// legal.
std::string rules_broken(const manifest::Site& site, const Problem& problem);

/// Returns the first implementation whose default is legal for this problem.
Usable default_for(const manifest::Site& site, const Problem& problem);
/// Returns the defaults that are legal at some size of the bucket, in the op's order: each may serve it.
std::vector<manifest::Variant> defaults_of(const manifest::Bucket& bucket);

/// A choice of a record that is legal on a device.
struct Serving : manifest::Variant {
  manifest::Region region;
  store::Choice choice;
  /// The sizes at which it was timed: the region's upper ends. Executables are made for them or for larger ones
  /// (Answer::at).
  [[nodiscard]] const Problem& at() const noexcept { return region.high; }
};

/// The choices of a record that can serve, in its order. Sizes of a library that is missing are covered by
/// `without_library` alone.
struct Servings {
  std::vector<Serving> fastest;
  std::vector<Serving> without_library;  // empty where no choice of the record is a library's
  std::int64_t unusable = 0;             // choices whose sizes, implementation or config are undeclared or illegal
  std::string why_not;                   // of the first unusable choice
  [[nodiscard]] bool any() const noexcept { return !fastest.empty() || !without_library.empty(); }
};

/// Returns the choices that can serve `bucket`: the record's, or another one of the same selections. Where open sizes
/// differ, each choice serves all of `bucket`, from the record's upper edge down. Where a context is current, asks a
/// library whether it takes the config.
Servings servings_of(const manifest::Bucket& bucket, const store::Record& record);

}  // namespace kiln::answer

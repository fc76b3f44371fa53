#include "tune/serving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manifest/text.hpp"

namespace kiln::tune {

Servings servings_of(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device,
                     const store::Record& record) {
  Servings servings;
  const auto own = manifest::parse_bucket(op, record.bucket);
  const bool keeps_sizes = own && manifest::open_sizes(op, *own) == manifest::open_sizes(op, bucket);
  const auto add = [&](const store::Choice& choice) {
    const auto region = keeps_sizes ? manifest::parse_region(op, bucket, choice.sizes) : manifest::whole_of(op, bucket);
    Usable served;
    if (region)
      served = usable(op, region->high, device, choice.implementation, choice.config);
    else
      served.why_not = fmt::format("its sizes {} are not of this bucket", manifest::quote(choice.sizes));
    if (served.implementation == nullptr) {
      ++servings.unusable;
      if (servings.why_not.empty()) servings.why_not = std::move(served.why_not);
      return;
    }
    auto& role = choice.role == store::Role::fastest ? servings.fastest : servings.without_library;
    role.push_back({*region, std::move(served), choice});
  };
  for (const store::Choice& choice : record.choices) add(choice);
  if (!keeps_sizes) {
    std::ranges::reverse(servings.fastest);
    std::ranges::reverse(servings.without_library);
  }
  return servings;
}

}  // namespace kiln::tune

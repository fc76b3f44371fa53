#include "manifest/names.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manifest/text.hpp"

namespace kiln::manifest {

std::vector<std::string> names_of_problem(const Op& op) {
  std::vector<std::string> names;
  for (const Axis& axis : op.axes) names.push_back(axis.name);
  for (const Selection& selection : op.selections) names.push_back(selection.name);
  return names;
}

std::string why_unknown(const Op& op, std::string_view name) {
  const std::vector<std::string> names = names_of_problem(op);
  std::string_view what;
  if (std::ranges::find(op.runtime, name, &Runtime::name) != op.runtime.end())
    what = "a run-time value";
  else if (std::ranges::find(op.tensors, name, &Tensor::name) != op.tensors.end())
    what = "a tensor";
  if (!what.empty())
    return fmt::format("{} is {}, which each launch gives and no problem or bucket has, expected {}", quote(name), what,
                       one_of(names));
  return fmt::format("{} is unknown{}, expected {}", quote(name), did_you_mean(name, names), one_of(names));
}

}  // namespace kiln::manifest

#include "cli/ops_found.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "manifest/text.hpp"

namespace kiln::cli {

const manifest::Op& find_op(std::span<const manifest::Op> ops, std::string_view name) {
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const manifest::Op& op) { return op.name == name; });
  if (found != ops.end()) return *found;
  std::vector<std::string> names;
  for (const manifest::Op& op : ops) names.push_back(op.name);
  throw Error(ErrorKind::bad_input, fmt::format("there is no op {}{}; there are {}", manifest::quote(name),
                                                manifest::did_you_mean(name, names), fmt::join(names, ", ")));
}

}  // namespace kiln::cli
